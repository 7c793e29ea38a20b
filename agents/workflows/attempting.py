"""One attempt: a program is written, verified, profiled, diagnosed, and it is decided what comes next. Every workflow is made of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agents.diagnosis import Diagnosis, Evidence
from agents.payloads import DecisionMade, DiagnosisMade, DocumentRef, Failure
from agents.roles.situation import Advice, Attempt, Edit, Roles, Situation, Unusable, beside
from agents.run import Engine
from agents.span import Span
from agents.workflows.measuring import measure, verdict
from verifier.jobs import KernelProfile, Profile
from verifier.report import Report

MOST_GROUPS = 64  # in an event, those that take longest

Stopping = Callable[[Engine, Situation, Advice], Advice]


@dataclass(frozen=True)
class Turn:
    """What one attempt came to. `attempt` is null where the coder's replies held no program that could be verified."""

    attempt: Attempt | None
    advice: Advice
    decision: int | None  # seq of the decision that gave the advice

    @property
    def passed(self) -> bool:
        return self.attempt is not None and self.attempt.passed


async def attempt_once(
    run: Engine,
    situation: Situation,
    roles: Roles,
    path: str,
    parent: Attempt | None,
    advice: Advice | None,
    decision: int | None,
    *,
    stopping: Stopping | None = None,
) -> Turn | None:
    """One candidate as the advice asks, with the decision what comes next; null where the coder has nothing left to write."""
    async with run.span(path, f"Candidate {next_number(situation)}", "coder") as span:
        try:
            edit = await roles.coder.write(span, situation, parent, advice)
        except Unusable as refused:
            return await unusable(span, situation, refused, advice, decision)
        if edit is None:
            span.skip("the coder has no further program")
            return None
        attempt = await try_edit(run, span, situation, edit, parent)
        if decision is not None and advice is not None:
            await settle(span, attempt, advice, decision)
        following, decided = await advise(run, span, situation, roles, attempt, stopping)
    return Turn(attempt, following, decided)


async def try_edit(run: Engine, span: Span, situation: Situation, edit: Edit, parent: Attempt | None, *, profile: bool = True) -> Attempt:
    """Put an edit on record, verify it and, where it passes, profile it. Adds it to the situation's attempts."""
    attempt = await put_on_record(span, situation, edit, parent)
    await try_attempt(run, span, attempt, profile=profile)
    return attempt


async def put_on_record(span: Span, situation: Situation, edit: Edit, parent: Attempt | None) -> Attempt:
    """The edit as a candidate with a number, among the situation's attempts; nothing has been measured of it yet."""
    if edit.says:
        await span.say("coder", *edit.says)
    number = parent.number if parent else None
    proposed = await span.propose(
        edit.source, parent=number, title=edit.title, step=edit.step, changes=edit.changes, strategy=edit.strategy,
        idea=edit.idea.number if edit.idea else None, author=edit.author, way=edit.way,
    )  # fmt: skip
    attempt = Attempt(proposed.candidate, number, edit, base=beside(parent))
    situation.attempts.append(attempt)
    situation.attempts.sort(key=lambda a: a.number)  # workers in parallel come in another order after a resume
    situation.refusals.clear()
    return attempt


async def try_attempt(run: Engine, span: Span, attempt: Attempt, *, profile: bool = True) -> None:
    """Verify what is on record beside the program that it was made from and, where it passes, profile it."""
    source = attempt.edit.source
    rival = attempt.base.edit.source if attempt.base is not None and attempt.base.edit.source != source else None
    attempt.report = await measure(span, source, attempt.number, "full" if only_one(run) else "quick", rival)
    if attempt.passed:
        if profile:
            attempt.profile = await profiled(run, span, attempt)
        span.summary = verdict(attempt.report)
    elif attempt.report.host_busy:
        span.skip(verdict(attempt.report))
    else:
        span.fail(verdict(attempt.report))


def only_one(run: Engine) -> bool:
    """Whether the run was given one program. Nothing is chosen then by figures of tier quick, so it is measured in tier full at once."""
    return run.settings.budget.candidates == 1


async def profiled(run: Engine, span: Span, attempt: Attempt) -> Profile | None:
    """A recorded profile of the attempt's program; where the settings want none, what its verdict observed of one call."""
    if run.settings.profiles == "all":
        return (await span.profile(attempt.edit.source, attempt.number)).result.profile
    return observed(attempt.verdict)


def observed(report: Report) -> Profile | None:
    """A profile out of the kernels that the verifier saw in its observed call: launches, times and shares, and no gaps."""
    if not report.kernels or report.timing is None:
        return None
    cuda = report.environment.device.startswith("cuda")  # a CPU has no launches, and is always at work
    device_ms = sum(kernel.ms for kernel in report.kernels)
    kernels = [
        KernelProfile(
            name=kernel.name, own=kernel.own, calls=round(kernel.calls), total_us=kernel.ms * 1e3, share=kernel.share,
            mean_us=kernel.ms * 1e3 / max(kernel.calls, 1),
        )
        for kernel in report.kernels
    ]  # fmt: skip
    return Profile(
        task=report.task, program=report.program, tool="cupti" if cuda else "torch-profiler",
        fallback_reason="the settings ask for no profiles", iterations=1, wall_us_per_iteration=report.timing.program_ms * 1e3,
        device_busy=min(1.0, device_ms / report.timing.program_ms) if cuda else None,
        launches_per_iteration=sum(kernel.calls for kernel in report.kernels) if cuda else None, kernels=kernels,
    )  # fmt: skip


def next_number(situation: Situation) -> int:
    """Of a workflow that writes one candidate after the other."""
    return max((attempt.number for attempt in situation.attempts), default=0) + 1


async def settle(span: Span, attempt: Attempt, advice: Advice, decision: int) -> None:
    """Hold what a decision brought against what it was to bring."""
    attempt.realises, attempt.expected = decision, advice.expected
    realised = attempt.gain.ratio if attempt.gain is not None else None
    outcome = f"candidate {attempt.number}: {verdict(attempt.verdict)}"[:1000]
    brought = DecisionMade(of=decision, route=advice.route, reason=outcome, expected=advice.expected, realised=realised)
    await span.emit(brought, agent="engine")


async def advise(
    run: Engine, span: Span, situation: Situation, roles: Roles, attempt: Attempt, stopping: Stopping | None = None
) -> tuple[Advice, int]:
    """The Verifier's diagnosis and route, after the engine's own reasons to stop; with the decision's seq."""
    advice = await roles.verifier.advise(span, situation, attempt)
    diagnosis = advice.diagnosis
    said = DiagnosisMade(candidate=attempt.number, method=advice.method, **diagnosis.model_dump())
    await span.emit(said.having(**cited(advice), **realised(advice)), agent="verifier")
    if stopping is not None:
        advice = stopping(run, situation, advice)
    await span.say("verifier", diagnosis.text + "\n", advice.reason)
    decision = DecisionMade(route=advice.route, reason=advice.reason, expected=advice.expected, method=advice.method)
    decided = await span.emit(decision, agent="verifier")
    return advice, decided.seq


def cited(advice: Advice) -> dict[str, list[DocumentRef]]:
    """Passages of documents that the diagnosis used, where it used any."""
    return {"documents": [DocumentRef(id=p.id, title=p.title) for p in advice.documents]} if advice.documents else {}


def realised(advice: Advice) -> dict[str, dict[str, float]]:
    """What each group of the plan took in this program, to hold against its floor and what was expected; absent where nothing is known."""
    longest = sorted(advice.groups, key=lambda group: -advice.groups[group])[:MOST_GROUPS]
    return {"groups": {group: advice.groups[group] for group in longest}} if longest else {}


async def unusable(span: Span, situation: Situation, refused: Unusable, advice: Advice | None, decision: int | None) -> Turn:
    """A model's replies that held no program: a failed attempt, whose reason the next prompt shows."""
    span.fail(f"no usable program: {refused.reason}"[:500])
    situation.refusals.append(refused.reason)
    await span.emit(Failure(message=f"no usable program: {refused.reason}"[:4000], where=span.path, kept="everything up to here"))
    if advice is None:
        evidence = Evidence(figure="reply", value="refused", means=refused.reason[:1000])
        advice = Advice(Diagnosis(bottleneck="defect", evidence=[evidence], text=refused.reason[:1000]), "repair", "There is no program yet.")
    return Turn(None, advice, decision)


Writing = Callable[[Span], Awaitable[Edit | None]]


async def write_and_try(
    run: Engine, situation: Situation, path: str, parent: Attempt | None, write: Writing, *, title: str = "Write and measure", profile: bool = True
) -> Attempt | None:
    """A candidate by any of the coder's ways (`write`), verified but not diagnosed; null where there was no program, with the reason on the span."""
    async with run.span(path, title, "coder") as span:
        try:
            edit = await write(span)
        except Unusable as refused:
            await unusable(span, situation, refused, None, None)
            return None
        if edit is None:
            span.skip("the coder has no further program")
            return None
        return await try_edit(run, span, situation, edit, parent, profile=profile)
