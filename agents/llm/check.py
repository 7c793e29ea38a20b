"""Tries a profile and reports whether it answers, how fast it is, which model it claims to be, and what the call cost."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pydantic import BaseModel

from agents.llm.call import Call
from agents.llm.errors import FailureKind, ModelFailure
from agents.llm.faults import Fault
from agents.llm.mailbox import FileMailbox, waiting_for
from agents.llm.messages import Delta, FinishReason, Message, Request, Usage
from agents.llm.models import Models
from agents.llm.profiles import CassetteProfile, MailboxProfile
from agents.llm.server import Server

QUESTION = Request(
    messages=[Message(role="system", content="You answer with one word."), Message(role="user", content="What is the opposite of slow?")],
    purpose="check",
    max_tokens=2048,  # enough tokens for a reasoning model to think
)
SHOWN = 60  # maximum number of characters of the reply


class Failure(BaseModel):
    kind: FailureKind
    message: str
    hint: str = ""


class Trial(BaseModel):
    """The findings. A mailbox or a recording is only inspected, without a request; `note` describes its state."""

    profile: str
    kind: str
    model: str = ""  # model name reported by the server
    ok: bool
    first_seconds: float | None = None  # time to the first piece of text or reasoning
    seconds: float | None = None
    streamed: bool | None = None
    reasoning: bool | None = None  # whether the server sends reasoning text
    finish: FinishReason | None = None
    usage: Usage | None = None  # None: the server does not report it
    dollars: float | None = None  # None: no usage was reported, or the profile has no prices
    text: str = ""
    note: str = ""
    failure: Failure | None = None


async def try_profile(models: Models, name: str) -> Trial:
    """Sends one request without retries, so that a failure is reported immediately."""
    profile = models.profiles()[name]
    try:
        if isinstance(profile, MailboxProfile):
            return Trial(profile=name, kind=profile.kind, ok=True, note=await _look_at_mailbox(models, name))
        if isinstance(profile, CassetteProfile):
            count = len(models.cassette(profile).exchanges)
            note = f"{count} exchanges recorded" + (f", more from {profile.record}" if profile.record else "")
            ok = count > 0 or profile.record is not None
            failure = None if ok else Failure(kind="configuration", message="the recording is empty or missing", hint="correct file in the profile")
            return Trial(profile=name, kind=profile.kind, ok=ok, note=note, failure=failure)
        return await _ask(models.server(name))
    except ModelFailure as error:
        failure = Failure(kind=error.kind, message=error.message.removeprefix(f"profile {name}: "), hint=error.hint)
        return Trial(profile=name, kind=profile.kind, model=getattr(profile, "model", ""), ok=False, failure=failure)


async def _ask(server: Server) -> Trial:
    begun = time.monotonic()
    first: float | None = None

    async def on_delta(delta: Delta) -> None:
        nonlocal first
        first = time.monotonic() - begun if first is None else first

    call = Call(server, QUESTION, on_delta)
    try:
        answer = await call.attempt()
    except Fault as fault:
        raise server.failure(fault, call.sent) from None
    prices = server.profile.prices
    trial = Trial(
        profile=server.name, kind=server.profile.kind, model=answer.model or server.profile.model, ok=True, first_seconds=first,
        seconds=time.monotonic() - begun, streamed=answer.streamed, reasoning=bool(answer.reasoning), finish=answer.finish, usage=answer.usage,
        dollars=prices.dollars(answer.usage) if prices and answer.usage else None, text=answer.text.strip()[:SHOWN],
    )  # fmt: skip
    if answer.finish is None:
        trial.ok = False
        trial.failure = Failure(kind="unreachable", message="the stream ended without a finish reason", hint="a proxy may cut off long answers")
    elif not answer.text.strip():
        trial.ok = False
        trial.failure = Failure(kind="protocol", message="the reply is empty", hint="check model and body in the profile")
    return trial


async def _look_at_mailbox(models: Models, name: str) -> str:
    """Returns a sentence that says whether requests can be put in the mailbox and which ones are waiting there."""
    probe = waiting_for(name, QUESTION, key="check", run="llm-check")
    await models.store.put(probe)
    await models.store.withdraw(probe.id)
    waiting = len(await models.store.list())
    where = f" in {models.store.folder}" if isinstance(models.store, FileMailbox) else " on the page Mailbox"
    return f"a person answers{where}; {waiting or 'no'} {'request waits' if waiting == 1 else 'requests wait'} there"


def report(trials: Sequence[Trial]) -> str:
    """Returns a human-readable report with one paragraph per profile."""
    return "\n\n".join("\n".join(_lines(trial)) for trial in trials)


def _lines(trial: Trial) -> list[str]:
    head = f"{trial.profile} ({trial.kind}{', ' + trial.model if trial.model else ''}): {'works' if trial.ok else 'does not work'}"
    lines = [head]
    if trial.note:
        lines.append(f"  {trial.note}")
    if trial.seconds is not None:
        first = f"first token after {trial.first_seconds:.2f} s, " if trial.first_seconds is not None else ""
        lines.append(f"  {first}complete after {trial.seconds:.2f} s; {'streams' if trial.streamed else 'does not stream'}")
        lines.append(f"  {'sends its reasoning' if trial.reasoning else 'sends no reasoning'}; finish: {trial.finish}; said {trial.text!r}")
        lines.append(f"  {_usage(trial)}")
    if trial.failure is not None:
        lines.append(f"  {trial.failure.kind}: {trial.failure.message}")
        if trial.failure.hint:
            lines.append(f"  what to do: {trial.failure.hint}")
    return lines


def _usage(trial: Trial) -> str:
    usage = trial.usage
    if usage is None:
        return "usage: not reported by the server, so tokens and cost will be estimates"
    cached = f" ({usage.cached_tokens} from its cache)" if usage.cached_tokens else ""
    thought = f" ({usage.reasoning_tokens} of reasoning)" if usage.reasoning_tokens else ""
    cost = f"${trial.dollars:.6f}" if trial.dollars is not None else "unknown: the profile has no prices"
    return f"usage: {usage.input_tokens} tokens in{cached}, {usage.output_tokens} out{thought}; cost: {cost}"
