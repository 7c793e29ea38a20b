"""A span of a run. Workflows write events and perform effects only through spans."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agents.asking import DELTA_CHARACTERS, ask
from agents.budget import OutOfBudget
from agents.events import MAX_PAYLOAD_BYTES, Agent, Event, NewEvent
from agents.llm.messages import Reply, Request
from agents.notes import COMPILER
from agents.payloads import (
    CandidateProposed,
    EffectCompleted,
    Failure,
    MessageCompleted,
    MessageDelta,
    Payload,
    PlanProposed,
    ProfileAttached,
    SpanClosed,
    SpanOpened,
    VerificationFinished,
    artefact,
)
from verifier.jobs import AdmitJob, CaptureJob, Job, JobResult, ProfileJob, VerifyJob
from verifier.report import Tier
from verifier.source import sha256

if TYPE_CHECKING:
    from agents.run import Engine

TEXT_LIMIT = MAX_PAYLOAD_BYTES // 2  # bytes of text that fit into an event, given that JSON escapes may double them


class Ended(Exception):
    """Ends a run early with a named outcome, for reasons such as an unsound task or a host without a compiler."""

    def __init__(self, outcome: str, reason: str):
        super().__init__(reason)
        self.outcome, self.reason = outcome, reason


@dataclass(frozen=True)
class Blob:
    """Bytes in a payload that are stored as an artefact when the event is written."""

    data: bytes
    media_type: str
    name: str = ""


@dataclass(frozen=True)
class Done:
    """A job's result and the payload of its `verification.finished`, including references to artefacts."""

    result: JobResult
    payload: VerificationFinished


class Span:
    """A span, used as `async with run.span(path, title) as span`. Everything inside a span is sequential, so its events and effects can be
    numbered."""

    def __init__(self, run: Engine, path: str, title: str, agent: Agent = "engine"):
        self.run, self.path, self.title, self.agent = run, path, title, agent
        self.status, self.summary = "ok", ""
        self._effects = self._looks = 0
        self._opened_at: datetime | None = None

    async def __aenter__(self) -> Span:
        opened = await self.emit(SpanOpened(title=self.title))
        self._opened_at = datetime.fromisoformat(opened.at)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        # Any other exception (cancellation, a lost lease, a bug) is either handled by the engine in one append or left for a later resume.
        if isinstance(error, OutOfBudget):
            await self._close("skipped", self.summary or str(error))
        elif isinstance(error, Ended):
            await self._close("failed", self.summary or error.reason)
        elif error is None:
            await self._close(self.status, self.summary)

    async def _close(self, status: str, summary: str) -> None:
        now = datetime.now(UTC)
        seconds = (now - self._opened_at).total_seconds() - self.run.still.between(self._opened_at, now) if self._opened_at else 0.0
        await self.emit(SpanClosed(status=status, seconds=round(max(seconds, 0.0), 3), summary=summary))

    def fail(self, summary: str) -> None:
        self.status, self.summary = "failed", summary

    def skip(self, summary: str) -> None:
        self.status, self.summary = "skipped", summary

    def key(self) -> str:
        """Returns the journal key of the next effect."""
        self._effects += 1
        return f"{self.path}#{self._effects}"

    # events

    async def emit(self, payload: Payload, agent: Agent | None = None, **blobs: Blob) -> Event:
        """Writes one event, or returns it if the journal already has it. `blobs`: fields of the payload that become artefacts."""
        recorded = self.run.replay.next(self.path, payload.kind)
        if recorded is not None:
            return recorded
        stored = {name: await self.run.journal.put(blob.data, blob.media_type, blob.name) for name, blob in blobs.items()}
        return await self.record(payload.having(**stored), self.agent if agent is None else agent)

    async def record(self, payload: Payload, agent: Agent) -> Event:
        """Writes one event that has no fixed place in the order of the span's events."""
        return (await self.run.append([NewEvent.of(payload, self.path, agent)]))[0]

    async def say(self, agent: Agent, *pieces: str | Iterable[str]) -> str:
        """Streams a message piece by piece, as soon as each piece is available, and then completes it. Returns the whole text."""
        key = self.key()
        if self.run.replay.ahead(self.path):
            recorded = (await self.emit(MessageCompleted())).of(MessageCompleted)
            return (recorded.text if recorded is not None else None) or ""
        already = self.run.replay.messages.get(key, "")
        text = ""
        for piece in (p for given in pieces for p in ([given] if isinstance(given, str) else given)):
            for start in range(0, len(piece), DELTA_CHARACTERS):
                part = piece[start : start + DELTA_CHARACTERS]
                offset, text = len(text), text + part
                if already[offset : offset + len(part)] == part:
                    continue  # streamed before an interruption
                already = already[:offset]
                await self.record(MessageDelta(message=key, offset=offset, text=part), agent)
        if len(text.encode()) <= TEXT_LIMIT:
            await self.emit(MessageCompleted(message=key, text=text), agent)
        else:
            await self.emit(MessageCompleted(message=key), agent, artefact=Blob(text.encode(), "text/plain", "message.txt"))
        return text

    # effects

    async def effect(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Performs a small effect (the clock, a random number) once. From then on, its JSON value is read from the journal."""
        key = self.key()
        recorded = self.run.replay.effects.get(key)
        if recorded is None:
            await self.run.gate()
            recorded = EffectCompleted(key=key, name=name, value=await call())
            await self.record(recorded, "engine")
        return recorded.value

    async def ask(self, agent: Agent, profile: str, request: Request) -> Reply:
        """Asks a language model once. The reply is streamed into the trace and read from the journal from then on.

        Includes notes that people sent to that agent. Raises `OutOfBudget` before the call. If the model does not answer, the run pauses.
        """
        return await ask(self, self.key(), agent, profile, request)

    async def notes(self, agent: Agent) -> list[str]:
        """Returns the notes that people have sent to that agent since its last prompt, for prompts that have a dedicated place for them. Each note is
        delivered once: `ask` adds only the notes that were not taken here."""
        key = self.key()
        recorded = self.run.replay.effects.get(key)
        if recorded is None:
            if self.run.replay.passed(key):
                return []  # there were no notes, and no event records their absence
            await self.run.gate()
            with self.run.notes.claimed(agent, key) as noted:
                if not noted:
                    return []
                value = {"agent": agent, "notes": [note["seq"] for note in noted]}
                recorded = EffectCompleted(key=key, name="notes", value=value)
                await self.record(recorded, "engine")
        return [self.run.notes.text(seq) for seq in recorded.value["notes"]]

    async def orders(self, roles: Sequence[str]) -> list[dict[str, Any]]:
        """Returns the notes sent since the last read to these roles, which the built-in compiler plays: `{seq, to, text, by}`, oldest first, each
        delivered once.

        Reads have separate keys, so an additional read does not change the key of any other effect in the span.
        """
        self._looks += 1
        key, replay = f"{self.path}/orders#{self._looks}", self.run.replay
        recorded = replay.effects.get(key)
        if recorded is None:
            if replay.passed(key) or replay.passed(f"{self.path}#{self._effects}"):
                return []  # there were no notes, and no event records their absence
            await self.run.refresh()
            with self.run.notes.claimed(COMPILER, key, roles) as noted:
                if not noted:
                    return []
                value = {"agent": COMPILER, "notes": [note["seq"] for note in noted]}
                recorded = EffectCompleted(key=key, name="notes", value=value)
                await self.record(recorded, "engine")
        return [self.run.notes.note(seq) for seq in recorded.value["notes"]]

    async def propose_plan(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Records a plan and returns the plan to use. If the settings require it, the run waits until a person has read the plan and possibly changed
        it (`plan.edited`)."""
        proposed = await self.emit(PlanProposed.model_validate(payload))
        if not self.run.settings.review_plan:
            return payload
        key = self.key()
        recorded = self.run.replay.effects.get(key)
        if recorded is None:
            await self.run.refresh()
            if not self.run.replay.approved(proposed.seq):
                await self.run.hold("The plan waits for a person's review.", "review", "Resume the run as it is, or edit the plan first.")
            edited = self.run.replay.edited(proposed.seq)
            recorded = EffectCompleted(key=key, name="plan.reviewed", value={"edited": edited})
            await self.record(recorded, "person")
        seq = recorded.value["edited"]
        return {**payload, **self.run.replay.plans[seq].written()} if seq is not None else payload

    async def reserve(self, key: str, amounts: dict[str, float], keep: dict[str, float] | None = None) -> None:
        """Reserves budget before a call. A refusal is an effect, because the run must take the same path again when it is resumed."""
        refused = self.run.replay.effects.get(key)
        if refused is not None:
            value = refused.value
            raise OutOfBudget(value["unit"], value["spent"], value["limit"], value.get("wanted", 0.0))
        await self.run.gate()
        self.run.count_time()
        try:
            self.run.ledger.reserve(key, amounts, keep)
        except OutOfBudget as error:
            value = {"unit": error.unit, "spent": error.spent, "limit": error.limit, "wanted": error.wanted}
            await self.record(EffectCompleted(key=key, name="budget.refused", value=value), "engine")
            raise

    async def room_for(self, number: int) -> None:
        """Refuses a program before it is requested if the program budget has no room for it. Like any other refusal, this is an effect."""
        key, most = f"{self.path}#room", self.run.ledger.limits.candidates
        if (refused := self.run.replay.effects.get(key)) is not None:
            raise OutOfBudget(refused.value["unit"], refused.value["spent"], refused.value["limit"])
        if most is not None and number > most and not self.run.replay.ahead(self.path):
            value = {"unit": "candidates", "spent": number - 1, "limit": most}
            await self.record(EffectCompleted(key=key, name="budget.refused", value=value), "engine")
            raise OutOfBudget("candidates", number - 1, most)

    async def propose(
        self,
        source: str,
        *,
        number: int | None = None,
        parent: int | None,
        title: str,
        step: str,
        changes: str,
        strategy: str,
        idea: int | None = None,
        author: str = "",
        way: int | None = None,
        last: bool = False,
    ) -> CandidateProposed:
        """Records a candidate, which counts against the program budget. Only a replacement for the winner (`last`) may exceed the budget, and only by
        one. Without a `number` (parallel workers), the candidate gets the next free one and keeps it when the run is resumed; the number is in the
        returned payload."""
        key = self.key()
        run = self.run
        if key in run.replay.effects or not run.replay.ahead(self.path):
            if not last:
                wanted = {"candidates": 1, "verifier_seconds": run.ledger.usual_seconds.get("verify.quick", 0.0)}
                await self.reserve(key, wanted, run.kept_back())
            number = run.allot(number)
        payload = CandidateProposed(
            key=key, candidate=number or 0, parent=parent, title=title, step=step, changes=changes, strategy=strategy, sha=sha256(source)
        )  # fmt: skip
        if idea is not None:
            payload = payload.having(idea=idea)
        if author:
            payload = payload.having(author=author[:300])
        if way is not None:
            payload = payload.having(way=way)
        event = await self.emit(payload, program=Blob(source.encode(), "text/x-python", f"candidate-{number}.py"))
        return event.of(CandidateProposed) or payload

    async def admit(self, capture_follows: bool = False) -> Done:
        return await self.job(AdmitJob(**self._common(), capture_follows=capture_follows))

    async def capture(self) -> Done:
        return await self.job(CaptureJob(**self._common()))

    async def verify(self, source: str, candidate: int | None, tier: Tier, *, last: bool = False, rival: str | None = None) -> Done:
        """Verifies a program. Verifications with `last` (those of the winner) may use the part of the budget that the search has to leave unspent.
        `rival`: a program that is timed alternately with this one."""
        return await self.job(VerifyJob(**self._common(), program_source=source, tier=tier, rival_source=rival), candidate, last=last)

    async def profile(self, source: str | None, candidate: int | None) -> Done:
        """Profiles a candidate or the reference. On a GPU, this includes hardware counters. Attaches the timeline and the profile if the profiler
        produced them."""
        counters = self.run.settings.device.startswith("cuda")
        done = await self.job(ProfileJob(**self._common(), program_source=source, counters=counters), candidate, last=True)
        profile = done.result.profile
        if profile is not None:
            attached = ProfileAttached(candidate=candidate, tool=profile.tool)
            if done.payload.timeline is not None:
                attached = attached.having(timeline=done.payload.timeline)
            await self.emit(attached, "verifier", profile=Blob(profile.model_dump_json().encode(), "application/json", "profile.json"))
        return done

    async def job(self, job: Job, candidate: int | None = None, *, last: bool = False) -> Done:
        """Has a verifier run a job, or takes the job's result from the journal. Raises `OutOfBudget` before the job starts, never while it runs.

        A host failure (`JobResult.error`) is retried once under a separate key; a second one ends the run.
        """
        for attempt in (1, 2):
            done = await self._job_once(job, candidate, last)
            error = done.result.error or _host_failure(done.result)
            error = error[:2000]
            if not error:
                return done
            if job.kind == "profile":  # a profile is useful, but a missing one does not end the run
                kept = "the run continues without this profile"
                await self.emit(Failure(message=f"no profile: {error}", where=self.path, kept=kept))
                return done
            kept = "trying once more" if attempt == 1 else "everything up to here"
            await self.emit(Failure(message=f"the verifier could not do the job {job.kind}: {error}", where=self.path, kept=kept))
        raise Ended("failed", f"the verifier could not do the job {job.kind}: {error}")

    async def _job_once(self, job: Job, candidate: int | None, last: bool) -> Done:
        key = self.key()
        run = self.run
        finished = run.replay.finished.get(key)
        if finished is not None:
            return Done(JobResult.model_validate_json(await run.journal.get(artefact(finished.result))), finished)
        await run.need_device()
        wanted = {"verifier_seconds": run.ledger.usual_seconds.get(f"{job.kind}.{getattr(job, 'tier', '')}", 0.0)}
        await self.reserve(key, wanted, None if last else run.kept_back())
        try:
            result = await run.verifier.run(job, key=key, span=self.path, candidate=None if candidate is None else str(candidate))
        except BaseException:
            run.ledger.release(key)
            raise
        await run.refresh()
        finished = run.replay.finished.get(key)
        if finished is None:
            raise RuntimeError(f"the verifier returned from {key} without a verification.finished in the trace")
        await run.append([run.budget_event(self.path)])
        return Done(result, finished)

    def _common(self) -> dict[str, Any]:
        settings = self.run.settings
        return {"task_source": self.run.task_source, "precision": settings.precision, "mode": settings.mode}


def _host_failure(result: JobResult) -> str:
    """Returns a report's description of a host failure, or "" if the host did not fail."""
    report = result.report
    return (report.message or "the host failed") if report is not None and report.status == "infrastructure_error" else ""
