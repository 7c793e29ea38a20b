"""The two protocols: a request's content, and a reply as one object or as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tests.standin.wire import BadRequest

Dialect = Literal["openai", "anthropic"]
PIECE = 400  # characters per streamed piece
TOKEN = 4  # approximate number of characters per token, for usage


@dataclass(frozen=True)
class Conversation:
    """The content of a request in either protocol. `turns` are (author, text) pairs, starting with the system's."""

    dialect: Dialect
    model: str
    turns: tuple[tuple[str, str], ...]
    stream: bool
    usage_in_stream: bool
    max_tokens: int | None

    @property
    def text(self) -> str:
        return "\n\n".join(text for _, text in self.turns)

    @property
    def input_tokens(self) -> int:
        return len(self.text) // TOKEN + 3 * len(self.turns)


@dataclass(frozen=True)
class Said:
    text: str
    reasoning: str = ""
    finish: Literal["stop", "length"] = "stop"

    @property
    def output_tokens(self) -> int:
        return (len(self.text) + len(self.reasoning)) // TOKEN + 1


def conversation(dialect: Dialect, body: bytes) -> Conversation:
    """Parses a request. Raises `BadRequest` with the reason, as a real server would."""
    try:
        data = json.loads(body)
    except ValueError as error:
        raise BadRequest(400, f"the body is not JSON: {error}") from None
    messages = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(messages, list) or not messages:
        raise BadRequest(400, "messages is missing or empty")
    turns = []
    if dialect == "anthropic":
        if not isinstance(data.get("max_tokens"), int):
            raise BadRequest(400, "max_tokens: field required")
        if data.get("system"):
            turns.append(("system", flat(data["system"])))
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in ("system", "developer", "user", "assistant"):
            raise BadRequest(400, "a message has no role that is known")
        if dialect == "anthropic" and message["role"] == "system":
            raise BadRequest(400, 'messages: the system prompt belongs into "system"')
        turns.append((message["role"], flat(message.get("content"))))
    limit = data.get("max_completion_tokens") or data.get("max_tokens")
    options = data.get("stream_options") or {}
    return Conversation(dialect, str(data.get("model", "")), tuple(turns), bool(data.get("stream")), bool(options.get("include_usage")), limit)


def flat(content: Any) -> str:
    """Returns the text of a message, given as a string or as parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise BadRequest(400, "a message has no content")


def error_body(dialect: Dialect, status: int, message: str) -> dict[str, Any]:
    kind = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}.get(status, "api_error")
    if dialect == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "code": None}}


def whole(asked: Conversation, said: Said, number: int) -> dict[str, Any]:
    """Returns the reply as one object."""
    if asked.dialect == "anthropic":
        blocks = [{"type": "thinking", "thinking": said.reasoning, "signature": ""}] if said.reasoning else []
        return {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": asked.model, "stop_reason": anthropic_stop(said),
            "stop_sequence": None, "content": [*blocks, {"type": "text", "text": said.text}],
            "usage": {"input_tokens": asked.input_tokens, "output_tokens": said.output_tokens},
        }  # fmt: skip
    message = {"role": "assistant", "content": said.text, **({"reasoning_content": said.reasoning} if said.reasoning else {})}
    return {
        "id": f"chatcmpl-{number}", "object": "chat.completion", "created": 0, "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": said.finish}], "usage": openai_usage(asked, said),
    }  # fmt: skip


def events(asked: Conversation, said: Said, number: int) -> Iterator[str]:
    """Yields the reply as server-sent events, including the end of the stream."""
    yield from (anthropic_events if asked.dialect == "anthropic" else openai_events)(asked, said, number)


def openai_events(asked: Conversation, said: Said, number: int) -> Iterator[str]:
    base = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": asked.model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return sse({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(said.reasoning):
        yield chunk({"reasoning_content": piece})
    for piece in pieces(said.text):
        yield chunk({"content": piece})
    yield chunk({}, said.finish)
    if asked.usage_in_stream:
        yield sse({**base, "choices": [], "usage": openai_usage(asked, said)})
    yield "data: [DONE]\n\n"


def anthropic_events(asked: Conversation, said: Said, number: int) -> Iterator[str]:
    usage = {"input_tokens": asked.input_tokens, "output_tokens": 1}
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "usage": usage,
    }
    yield named("message_start", {"message": message})
    index = 0
    for kind, field, text in (("thinking", "thinking", said.reasoning), ("text", "text", said.text)):
        if not text:
            continue
        yield named("content_block_start", {"index": index, "content_block": {"type": kind, field: ""}})
        for piece in pieces(text):
            yield named("content_block_delta", {"index": index, "delta": {"type": f"{kind}_delta", field: piece}})
        yield named("content_block_stop", {"index": index})
        index += 1
    delta = {"stop_reason": anthropic_stop(said), "stop_sequence": None}
    yield named("message_delta", {"delta": delta, "usage": {"output_tokens": said.output_tokens}})
    yield named("message_stop", {})


def anthropic_stop(said: Said) -> str:
    return {"stop": "end_turn", "length": "max_tokens"}[said.finish]


def openai_usage(asked: Conversation, said: Said) -> dict[str, Any]:
    return {
        "prompt_tokens": asked.input_tokens,
        "completion_tokens": said.output_tokens,
        "total_tokens": asked.input_tokens + said.output_tokens,
        "completion_tokens_details": {"reasoning_tokens": len(said.reasoning) // TOKEN},
    }


def pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]


def sse(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def named(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\n{sse({'type': kind, **data})}"
