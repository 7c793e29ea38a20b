"""OpenAI's chat completions API, as implemented by OpenAI and compatible servers (vLLM, SGLang, Ollama, llama.cpp, DeepSeek, gateways).

These servers differ in the name of the reply limit, the field for reasoning, whether and when they send usage, and whether they stream at all. All
variants are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from agents.llm.answer import Answer
from agents.llm.faults import Fault, broken, of_status, words_of
from agents.llm.messages import Delta, FinishReason, Request, Usage
from agents.llm.profiles import OpenAIProfile

FINISH: dict[str, FinishReason] = {
    "stop": "stop", "eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "end_turn": "stop",
    "length": "length", "max_tokens": "length", "content_filter": "filter", "sensitive": "filter",
}  # fmt: skip
BROKEN_OFF = ("error", "abort", "cancelled", "insufficient_system_resource")  # the server gave up in the middle of the reply
UNWANTED = re.compile(r"unsupported|not supported|unrecognized|unknown|not permitted|extra|unexpected|only the default|use 'max", re.IGNORECASE)


class OpenAI:
    """The dialect for one profile. It remembers which fields this server rejects."""

    path = "/chat/completions"

    def __init__(self, profile: OpenAIProfile):
        self.profile = profile
        own = urlsplit(profile.base_url).hostname == "api.openai.com"  # OpenAI's reasoning models reject the old name
        self.limit_field = "max_completion_tokens" if own else "max_tokens"
        self.left_out: set[str] = set()

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, request: Request, max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.profile.model,
            "messages": [message.model_dump() for message in request.messages],
            self.limit_field: max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        temperature = self.profile.temperature if request.temperature is None else request.temperature
        if temperature is not None:
            body["temperature"] = temperature
        body |= self.profile.body
        return {name: value for name, value in body.items() if name not in self.left_out}

    def adapt(self, status: int, error: Mapping[str, Any] | str) -> bool:
        """Returns whether an error names a field that can be renamed or left out; if so, the next body is changed accordingly."""
        if status not in (400, 422):
            return False
        inner = error.get("error", error) if isinstance(error, Mapping) else {}
        param = str(inner.get("param") or "") if isinstance(inner, Mapping) else ""
        words, _ = words_of(error)
        if not UNWANTED.search(words):
            return False
        for name in ("max_completion_tokens", "max_tokens"):  # the message may name both fields; the rejected one is the one that we sent
            if name == self.limit_field and (param == name or re.search(rf"\b{name}\b", words)) and "limit" not in self.left_out:
                self.limit_field = "max_tokens" if name == "max_completion_tokens" else "max_completion_tokens"
                self.left_out.add("limit")  # switch only once, not back and forth
                return True
        for name in ("stream_options", "temperature"):
            if name not in self.left_out and (param.startswith(name) or name in words):
                self.left_out.add(name)
                return True
        return False

    def event(self, data: str, answer: Answer) -> list[Delta]:
        if data.strip() == "[DONE]":
            answer.ended = True
            return []
        return self._chunk(parse(data), answer, "delta")

    def whole(self, data: Mapping[str, Any], answer: Answer) -> list[Delta]:
        if not isinstance(data.get("choices"), list) or not data["choices"]:
            self._refuse_errors(data)
            raise Fault("protocol", "the answer has no choices", "check that base_url is the address of an OpenAI-compatible server")
        return self._chunk(data, answer, "message")

    def _refuse_errors(self, data: Mapping[str, Any]) -> None:
        if data.get("error") or data.get("object") == "error":
            raise of_status(200, data, {}, self.profile.api_key_env)

    def _chunk(self, data: Mapping[str, Any], answer: Answer, part: str) -> list[Delta]:
        self._refuse_errors(data)
        if isinstance(data.get("model"), str):
            answer.model = data["model"] or answer.model
        if isinstance(data.get("usage"), Mapping):
            answer.usage = usage_of(data["usage"])
        deltas: list[Delta] = []
        for choice in data.get("choices") or []:
            if not isinstance(choice, Mapping) or choice.get("index") not in (0, None):
                continue
            if isinstance(choice.get("usage"), Mapping):  # as sent by Moonshot
                answer.usage = usage_of(choice["usage"])
            said = choice.get(part) or choice.get("message") or {}
            if isinstance(said, Mapping):
                reasoning = said.get("reasoning_content") or said.get("reasoning")
                if isinstance(reasoning, str):
                    deltas += answer.add("reasoning", reasoning)
                deltas += _content(said.get("content"), answer)
                deltas += _content(said.get("refusal"), answer)
            reason = choice.get("finish_reason")
            if reason in BROKEN_OFF:
                raise broken(f"the server aborted the reply (finish_reason {reason!r})")
            if isinstance(reason, str) and reason:
                answer.finish = "filter" if isinstance(said, Mapping) and said.get("refusal") else FINISH.get(reason, "other")
        return deltas


def _content(content: Any, answer: Answer) -> list[Delta]:
    """Reads content that is a string or a list of parts: {"type": "text", "text"} or {"type": "thinking", "thinking": string or parts}."""
    if isinstance(content, str):
        return answer.add("text", content)
    deltas: list[Delta] = []
    for part in content if isinstance(content, list) else []:
        if not isinstance(part, Mapping):
            continue
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            pieces = inner if isinstance(inner, list) else [{"text": inner}]
            for piece in pieces:
                deltas += answer.add("reasoning", str(piece.get("text") or "")) if isinstance(piece, Mapping) else []
        elif isinstance(part.get("text"), str):
            deltas += answer.add("text", part["text"])
    return deltas


def parse(data: str) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        raise broken(f"a piece of the stream is not JSON: {data[:80]!r}") from None
    if not isinstance(found, Mapping):
        raise Fault("protocol", f"a piece of the stream is {type(found).__name__}, not an object", "check base_url in the profile")
    return found


def usage_of(usage: Mapping[str, Any]) -> Usage:
    prompt, completion = (usage.get(f"{name}_tokens_details") or {} for name in ("prompt", "completion"))
    cached = prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    return Usage(
        input_tokens=count(usage.get("prompt_tokens")),
        output_tokens=count(usage.get("completion_tokens")),
        cached_tokens=count(cached),
        reasoning_tokens=count(completion.get("reasoning_tokens")),
    )


def count(value: Any) -> int:
    return max(int(value), 0) if isinstance(value, (int, float)) else 0
