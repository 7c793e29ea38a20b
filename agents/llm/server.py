"""A model behind HTTP. This module adds retries, endpoint limits, a context check, usage and cost to the exchanges in `call.py`."""

from __future__ import annotations

import random
from asyncio import sleep
from collections.abc import Mapping

import httpx

from agents.llm.answer import Answer
from agents.llm.anthropic import Anthropic
from agents.llm.call import Call, Dialect, OnDelta
from agents.llm.errors import ModelFailure
from agents.llm.faults import Fault, broken
from agents.llm.limits import limiter_of
from agents.llm.messages import Reply, Request, Usage
from agents.llm.openai import OpenAI
from agents.llm.profiles import OpenAIProfile, ServerProfile
from agents.llm.tokens import estimate_input

FIRST_WAIT, LONGEST_BACKOFF = 1.0, 60.0  # in seconds, with full jitter as in AWS's "Exponential backoff and jitter"
LONGEST_WAIT = 300.0  # the run pauses if a server asks us to wait longer


class Server:
    """A client for one openai or anthropic profile."""

    def __init__(self, name: str, profile: ServerProfile, environment: Mapping[str, str], transport: httpx.AsyncBaseTransport | None = None):
        self.name, self.profile, self.environment, self.transport = name, profile, environment, transport
        self.dialect: Dialect = OpenAI(profile) if isinstance(profile, OpenAIProfile) else Anthropic(profile)  # type: ignore[arg-type]  # no other kind

    def max_tokens(self, request: Request) -> int:
        return min(request.max_tokens, self.profile.max_tokens or request.max_tokens)

    def estimate(self, request: Request) -> dict[str, float]:
        tokens, reply = estimate_input(request), self.max_tokens(request)
        amounts: dict[str, float] = {"calls": 1, "tokens": tokens + reply}
        if self.profile.prices is not None:
            amounts["dollars"] = self.profile.prices.dollars(Usage(input_tokens=tokens, output_tokens=reply))
        return amounts

    async def ask(self, request: Request, on_delta: OnDelta) -> Reply:
        """Returns a reply. Raises `ModelFailure` if a retry would not help or no retries are left."""
        self._guard(request)
        call = Call(self, request, on_delta)
        limiter = limiter_of(self.profile)
        retries = self.profile.limits.retries
        spent: list[Usage] = []
        for attempt in range(retries + 1):
            async with limiter.place(estimate_input(request) + self.max_tokens(request)) as place:
                try:
                    answer = await call.attempt()
                    _check(answer)
                    fault = None
                except Fault as error:
                    fault, answer = error, call.answer
                    if fault.status:
                        place.correct(0)
                if answer.usage is not None:
                    place.correct(answer.usage.input_tokens + answer.usage.output_tokens)
                    spent.append(answer.usage)
            if fault is None:
                return self._reply(answer, spent, call.sent)
            wait = _backoff(attempt) if fault.wait is None else fault.wait + random.uniform(0, FIRST_WAIT)
            if not fault.again or attempt == retries or wait > LONGEST_WAIT:
                raise self.failure(fault, call.sent) from None
            if fault.wait is not None:
                limiter.hold(fault.wait)
            await sleep(wait)
        raise AssertionError("unreachable")

    def failure(self, fault: Fault, sent: int) -> ModelFailure:
        tries = f" ({sent} requests)" if sent > 1 else ""
        asked = f"; the server asks the client to wait {fault.wait:.0f} s" if fault.wait is not None and fault.wait > LONGEST_WAIT else ""
        message = self._without_key(f"profile {self.name}: {fault.message}{tries}{asked}")
        return ModelFailure(fault.kind, message, self._without_key(fault.hint), attempts=max(sent, 1))

    def key(self) -> str | None:
        """Returns the key, read from the environment for each request, or None if the profile names no variable."""
        variable = self.profile.api_key_env
        if variable is None:
            return None
        value = self.environment.get(variable, "").strip()
        if not value:
            raise ModelFailure(
                "configuration",
                f"profile {self.name}: the environment variable {variable} is not set",
                "set it to the key in the environment of the orchestrator (or of this command), restart that and resume",
                attempts=0,
            )
        if not value.isascii() or not value.isprintable():
            raise ModelFailure("configuration", f"profile {self.name}: {variable} has characters that no key has", "copy the key again", attempts=0)
        return value

    def _without_key(self, text: str) -> str:
        value = self.environment.get(self.profile.api_key_env or "", "").strip()
        return text.replace(value, "[key]") if len(value) >= 6 else text

    def _guard(self, request: Request) -> None:
        most = self.profile.context_tokens
        if most is None:
            return
        prompt, reply = estimate_input(request), self.max_tokens(request)
        over = prompt + reply - most
        if over > 0:
            raise ModelFailure(
                "too-long",
                f"profile {self.name}: about {prompt} tokens of prompt and up to {reply} of reply are {over} more than the {most} "
                "that the model takes",
                "lower max_tokens in the profile" if prompt < most // 2 else "choose a model with a longer context",
                attempts=0,
            )

    def _reply(self, answer: Answer, spent: list[Usage], sent: int) -> Reply:
        usage = _sum(spent) if answer.usage is not None else None
        prices = self.profile.prices
        return Reply(
            text=answer.text, reasoning=answer.reasoning, finish=answer.finish or "other", model=answer.model or self.profile.model, usage=usage,
            dollars=prices.dollars(usage) if prices is not None and usage is not None else None, attempts=sent,
        )  # fmt: skip


def _check(answer: Answer) -> None:
    if answer.finish is None:
        raise broken("the stream ended in the middle of the reply" if answer.streamed else "the answer is empty")
    if answer.finish == "stop" and not answer.text.strip():
        raise Fault("protocol", "the reply is empty", "check model and body in the profile, or ask again", again=True)


def _backoff(attempt: int) -> float:
    return random.uniform(0, min(LONGEST_BACKOFF, FIRST_WAIT * 2**attempt))


def _sum(usages: list[Usage]) -> Usage:
    return Usage(**{name: sum(getattr(usage, name) for usage in usages) for name in Usage.model_fields})
