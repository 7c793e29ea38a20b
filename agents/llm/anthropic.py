"""Anthropic's Messages API: events have names, content comes in blocks, thinking is separate from text, and the system prompt has its own field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.llm.answer import Answer
from agents.llm.faults import Fault, of_status
from agents.llm.messages import Delta, FinishReason, Request, Usage
from agents.llm.openai import count, parse
from agents.llm.profiles import AnthropicProfile

VERSION = "2023-06-01"
FINISH: dict[str, FinishReason] = {
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "filter",
}  # fmt: skip
CACHED = {"cache_control": {"type": "ephemeral"}}


class Anthropic:
    """The dialect for one profile."""

    path = "/messages"

    def __init__(self, profile: AnthropicProfile):
        self.profile = profile
        self._temperature_refused = False

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    def body(self, request: Request, max_tokens: int) -> dict[str, Any]:
        """Builds the request body. There are cache breakpoints after the system prompt and after the last message, because a repair request begins
        with the same text."""
        system = [m.content for m in request.messages if m.role == "system"]
        said = [m for m in request.messages if m.role != "system"]
        messages: list[dict[str, Any]] = [{"role": m.role, "content": m.content} for m in said]
        if said and said[-1].role == "user" and said[-1].content.strip():
            messages[-1]["content"] = [{"type": "text", "text": said[-1].content, **CACHED}]
        body: dict[str, Any] = {"model": self.profile.model, "max_tokens": max_tokens, "messages": messages, "stream": True}
        if system:
            body["system"] = [{"type": "text", "text": "\n\n".join(system), **CACHED}]
        temperature = self.profile.temperature if request.temperature is None else request.temperature
        if temperature is not None and "thinking" not in self.profile.body and not self._temperature_refused:
            body["temperature"] = min(temperature, 1.0)  # not allowed together with thinking; the maximum is 1
        return body | self.profile.body

    def adapt(self, status: int, error: Mapping[str, Any] | str) -> bool:
        """Leaves out the temperature once the server has rejected it; newer models do not accept one."""
        if status == 400 and "temperature" in str(error) and not self._temperature_refused:
            self._temperature_refused = True
            return True
        return False

    def event(self, data: str, answer: Answer) -> list[Delta]:
        event = parse(data)
        kind = event.get("type")
        if kind == "error" or (kind is None and "error" in event):
            raise of_status(200, event, {}, self.profile.api_key_env)
        if kind == "message_start":
            message = event.get("message") or {}
            answer.model = str(message.get("model") or answer.model)
            _usage(message.get("usage"), answer)
        elif kind == "content_block_start":
            return _block(event.get("content_block") or {}, answer)
        elif kind == "content_block_delta":
            return _block(event.get("delta") or {}, answer)
        elif kind == "message_delta":
            reason = (event.get("delta") or {}).get("stop_reason")
            if reason:
                answer.finish = FINISH.get(reason, "other")
            _usage(event.get("usage"), answer)
        elif kind == "message_stop":
            answer.ended = True
        return []  # pings, ends of blocks, and event types that may be added later

    def whole(self, data: Mapping[str, Any], answer: Answer) -> list[Delta]:
        if data.get("type") == "error" or "error" in data:
            raise of_status(200, data, {}, self.profile.api_key_env)
        if not isinstance(data.get("content"), list):
            raise Fault("protocol", "the answer has no content", "check that base_url is the address of a server with Anthropic's messages API")
        answer.model = str(data.get("model") or "")
        _usage(data.get("usage"), answer)
        deltas = [delta for block in data["content"] if isinstance(block, Mapping) for delta in _block(block, answer)]
        if data.get("stop_reason"):
            answer.finish = FINISH.get(str(data["stop_reason"]), "other")
        return deltas


def _block(block: Mapping[str, Any], answer: Answer) -> list[Delta]:
    deltas = answer.add("reasoning", block["thinking"]) if isinstance(block.get("thinking"), str) else []
    return deltas + (answer.add("text", block["text"]) if isinstance(block.get("text"), str) else [])


def _usage(usage: Any, answer: Answer) -> None:
    """Reads the token counts, which are cumulative. The last event repeats some counts, and input_tokens excludes tokens that were read from or
    written to the cache."""
    if not isinstance(usage, Mapping):
        return
    old = answer.usage or Usage()
    read = count(usage.get("cache_read_input_tokens")) or old.cached_tokens
    written = count(usage.get("cache_creation_input_tokens")) or old.cache_written_tokens
    plain = count(usage.get("input_tokens")) or old.input_tokens - old.cached_tokens - old.cache_written_tokens
    details = usage.get("output_tokens_details") or {}
    answer.usage = Usage(
        input_tokens=plain + read + written,
        output_tokens=count(usage.get("output_tokens")) or old.output_tokens,
        cached_tokens=read,
        cache_written_tokens=written,
        reasoning_tokens=count(details.get("thinking_tokens") or details.get("reasoning_tokens")) or old.reasoning_tokens,
    )
