"""One exchange with a language model as an effect of a run: it is budgeted, streamed into the trace, and replayed from the journal later."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from agents.events import Agent
from agents.llm.errors import Asked, ModelFailure
from agents.llm.messages import Delta, Message, Reply, Request
from agents.llm.recalling import recall
from agents.llm.tokens import usage_of
from agents.payloads import LlmCompleted, LlmFailed, LlmRequested, MessageDelta, Usage, artefact

if TYPE_CHECKING:
    from agents.span import Span

DELTA_CHARACTERS = 2000
DELTA_SECONDS = 0.075  # pieces that arrive within this time are merged into a single event
WRITING_SHARE = 5  # after a write, a stream waits at least this many times the duration of the write
CHARACTERS_A_TOKEN = 4  # estimate for servers that do not count tokens
NO_MODELS = "set up a profile (`python -m agents llm check` says how), or start the run with the role built-in"


async def ask(span: Span, key: str, agent: Agent, profile: str, request: Request) -> Reply:
    """Returns the reply for `key`: from the journal if it is recorded there, otherwise from the model.

    A `ModelFailure` never escapes from this function. Instead the run pauses with the failure as its reason, and it calls the model again when a
    person resumes the run. Raises `OutOfBudget` before a call, never in the middle of one.
    """
    run = span.run
    done = run.replay.replied.get(key)
    if done is not None:
        return await recall(run.journal, done)
    while True:
        await run.gate()
        left = await _left(span, key, profile)
        with run.notes.claimed(agent, key) as noted:
            asked = with_notes(request, noted) if left is None else left
            streamed = Streamed(span, key, agent)
            begun = time.monotonic()
            try:
                if run.models is None:
                    raise ModelFailure("configuration", f"no language models are set up here, {profile!r} among them", NO_MODELS, attempts=0)
                estimate = run.models.estimate(profile, asked)
                await span.reserve(key, estimate, run.kept_back())
                if left is None:
                    await _requested(span, key, agent, profile, asked, estimate, [note["seq"] for note in noted])
                async with streamed:
                    reply = await run.models.ask(profile, asked, key=key, run=run.journal.run, on_delta=streamed.add)
                    await streamed.replace(reply.text)
            except Asked as error:
                run.ledger.release(key)
                failure: ModelFailure = error
            except ModelFailure as error:
                failure = error
                await _failed(span, key, agent, profile, asked, failure, streamed.text)
            except BaseException:
                run.ledger.release(key)
                raise
            else:
                await _completed(span, key, agent, profile, asked, reply, estimate, time.monotonic() - begun)
                return reply
        more = {"key": key, "request": failure.request} if isinstance(failure, Asked) else {}
        await run.hold(failure.message, failure.kind, failure.hint, profile=profile, **more)


async def _left(span: Span, key: str, profile: str) -> Request | None:
    """Returns the request as sent before an interruption if its reply is still pending, and None otherwise."""
    run = span.run
    event = run.replay.asked.get(key)
    if event is None or event.profile != profile or not run.keeps(profile):
        return None
    return Request.model_validate_json(await run.journal.get(artefact(event.request)))


def with_notes(request: Request, notes: list[dict[str, Any]]) -> Request:
    """Appends notes from people to the last message, each with its author's name."""
    if not notes:
        return request
    said = "\n".join(f"- {note.get('by') or 'somebody'}: {note['text']}" for note in notes)
    last = request.messages[-1]
    message = Message(role=last.role, content=f"{last.content}\n\nNotes from the people who follow this run; heed them:\n{said}")
    return request.model_copy(update={"messages": [*request.messages[:-1], message]})


async def _requested(span: Span, key: str, agent: Agent, profile: str, request: Request, estimate: dict[str, float], noted: list[int]) -> None:
    kept = await span.run.journal.put(request.model_dump_json().encode(), "application/json", "request.json")
    payload = LlmRequested(key=key, profile=profile, purpose=request.purpose, request=kept, estimate=estimate)
    await span.record(payload.having(notes=noted) if noted else payload, agent)


async def _completed(
    span: Span, key: str, agent: Agent, profile: str, request: Request, reply: Reply, estimate: dict[str, float], seconds: float
) -> None:
    run = span.run
    if reply.usage is None:
        usage, counted = usage_of(request, reply.text + reply.reasoning)
        reply = reply.model_copy(update={"usage": usage, "counted": counted})
    bare = reply.model_copy(update={"reasoning": ""})
    payload = LlmCompleted(
        key=key, profile=profile, purpose=request.purpose, model=reply.model[:200], finish=reply.finish,
        usage=Usage.model_validate(reply.usage.model_dump()) if reply.usage else None, counted=reply.counted, dollars=reply.dollars,
        attempts=reply.attempts, seconds=round(seconds, 3), spent=cost(request, reply, estimate),
        reply=await run.journal.put(bare.model_dump_json().encode(), "application/json", "reply.json"),
    )  # fmt: skip
    if reply.reasoning:
        payload = payload.having(reasoning=await run.journal.put(reply.reasoning.encode(), "text/plain", "reasoning.txt"))
    await span.record(payload, agent)
    await run.append([run.budget_event(span.path)])


async def _failed(span: Span, key: str, agent: Agent, profile: str, request: Request, failure: ModelFailure, text: str) -> None:
    spent: dict[str, float] = {"calls": failure.attempts}
    if text:  # the server had begun to answer and will charge for that
        spent["tokens"] = tokens_in(request, text)
    payload = LlmFailed(
        key=key, profile=profile, role=agent, purpose=request.purpose, kind_=failure.kind, message=failure.message[:2000],
        hint=failure.hint[:1000], attempts=failure.attempts, spent=spent,
    )  # fmt: skip
    await span.record(payload, "engine")
    await span.run.append([span.run.budget_event(span.path)])


def cost(request: Request, reply: Reply, estimate: dict[str, float]) -> dict[str, float]:
    """Returns the cost of an exchange in budget units. If the server reports no token count, tokens are estimated from the number of characters, and
    the dollars are scaled accordingly."""
    tokens = reply.usage.input_tokens + reply.usage.output_tokens if reply.usage else tokens_in(request, reply.text + reply.reasoning)
    spent: dict[str, float] = {"calls": max(reply.attempts, 1), "tokens": tokens}
    dollars = reply.dollars
    if dollars is None and estimate.get("dollars") and estimate.get("tokens"):
        dollars = estimate["dollars"] * min(1.0, tokens / estimate["tokens"])
    return {**spent, "dollars": dollars} if dollars is not None else spent


def tokens_in(request: Request, reply: str) -> int:
    return (sum(len(message.content) for message in request.messages) + len(reply)) // CHARACTERS_A_TOKEN


class Streamed:
    """Streams the text of a reply into the trace. Use it in `async with`, `add` pieces as they arrive, and finally `replace` them with the whole
    text.

    Each delta states the position at which it starts. If that is before the end of what readers already have, the delta replaces everything from
    there on. A stream that restarts, because a client retried or this process was interrupted, therefore writes only the part that differs.
    """

    def __init__(self, span: Span, key: str, agent: Agent):
        self.span, self.key, self.agent = span, key, agent
        self.text = ""
        self._written = span.run.replay.messages.get(key, "")
        self._news = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Streamed:
        self._writer = asyncio.create_task(self._write_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def add(self, delta: Delta) -> None:
        """The `on_delta` callback of `agents.ports.ModelPort`. Propagates write errors, so that the stream stops if the run has lost its lease."""
        if delta.kind == "text" and delta.text:
            self.text += delta.text
            self._news.set()
        if self._writer is not None and self._writer.done():
            self._writer.result()

    async def replace(self, text: str) -> None:
        """Makes the trace contain exactly this text, regardless of what was streamed before."""
        await self._stop()
        self.text = text
        await self._write()
        if len(self._written) > len(text):
            await self._delta(len(text), "")

    async def _stop(self) -> None:
        if self._writer is None:
            return
        self._writer.cancel()
        await asyncio.wait([self._writer])  # a plain `await` would confuse our own cancellation with the writer's
        if not self._writer.cancelled():
            self._writer.exception()  # marks the exception as retrieved; the next append will raise the same error

    async def _write_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            begun = time.monotonic()
            await self._write()
            await asyncio.sleep(max(DELTA_SECONDS, WRITING_SHARE * (time.monotonic() - begun)))

    async def _write(self) -> None:
        text = self.text
        if self._written.startswith(text):
            return  # the trace already contains this part
        offset = _common(self._written, text)
        for start in range(offset, len(text), DELTA_CHARACTERS):
            await self._delta(start, text[start : start + DELTA_CHARACTERS])

    async def _delta(self, offset: int, text: str) -> None:
        self._written = self._written[:offset] + text
        await self.span.record(MessageDelta(message=self.key, offset=offset, text=text), self.agent)


def _common(a: str, b: str) -> int:
    """Returns the length of the common prefix in characters."""
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    low, high = 0, length
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low
