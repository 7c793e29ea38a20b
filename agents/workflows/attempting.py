"""One attempt: write, verify, profile and diagnose a program, and decide what comes next. All workflows are built from attempts."""

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

MOST_GROUPS = 64  # maximum number of plan groups in an event; the slowest are kept

Stopping = Callable[[Engine, Situation, Advice], Advice]


@dataclass(frozen=True)
class Turn:
    """The result of one attempt. `attempt` is None if the coder's replies contained no program that could be verified."""

    attempt: Attempt | None
    advice: Advice
    decision: int | None  # seq of the decision behind this advice

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
    """Writes one candidate as advised and decides what comes next. Returns None if the coder has nothing left to write. Raises `OutOfBudget` before
    requesting a program that the budget does not allow."""
    async with run.span(path, f"Candidate {next_number(situation)}", "coder") as span:
        await span.room_for(next_number(situation))
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
    """Records an edit, verifies it and, if it passes, profiles it. Adds the attempt to the situation."""
    attempt = await put_on_record(span, situation, edit, parent)
    await try_attempt(run, span, attempt, profile=profile)
    return attempt


async def put_on_record(span: Span, situation: Situation, edit: Edit, parent: Attempt | None) -> Attempt:
    """Records the edit as a numbered candidate and adds it to the situation's attempts without measuring it yet."""
    if edit.says:
        await span.say("coder", *edit.says)
    number = parent.number if parent else None
    proposed = await span.propose(
        edit.source, parent=number, title=edit.title, step=edit.step, changes=edit.changes, strategy=edit.strategy,
        idea=edit.idea.number if edit.idea else None, author=edit.author, way=edit.way,
    )  # fmt: skip
    attempt = Attempt(proposed.candidate, number, edit, base=beside(parent))
    situation.attempts.append(attempt)
    situation.attempts.sort(key=lambda a: a.number)  # in a resumed run, parallel workers finish in a different order
    situation.refusals.clear()
    return attempt


async def try_attempt(run: Engine, span: Span, attempt: Attempt, *, profile: bool = True) -> None:
    """Verifies a recorded attempt, timing it against its parent program, and profiles it if it passes."""
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
    """Returns whether the run may write only one program. In that case, nothing depends on quick-tier figures, so the program is measured in the full
    tier right away."""
    return run.settings.budget.candidates == 1


async def profiled(run: Engine, span: Span, attempt: Attempt) -> Profile | None:
    """Returns a recorded profile of the attempt's program or, if the settings turn profiling off, what the verifier observed during one call."""
    if run.settings.profiles == "all":
        return (await span.profile(attempt.edit.source, attempt.number)).result.profile
    return observed(attempt.verdict)


def observed(report: Report) -> Profile | None:
    """Returns a profile built from the kernels that the verifier recorded during the call it observed. It has launches, times and shares, but no
    gaps."""
    if not report.kernels or report.timing is None:
        return None
    cuda = report.environment.device.startswith("cuda")  # a CPU has no launches and is always busy
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
    """Returns the next candidate number in a workflow that writes candidates one after another."""
    return max((attempt.number for attempt in situation.attempts), default=0) + 1


async def settle(span: Span, attempt: Attempt, advice: Advice, decision: int) -> None:
    """Records the actual result of a decision next to the expected one."""
    attempt.realises, attempt.expected = decision, advice.expected
    realised = attempt.gain.ratio if attempt.gain is not None else None
    outcome = f"candidate {attempt.number}: {verdict(attempt.verdict)}"[:1000]
    brought = DecisionMade(of=decision, route=advice.route, reason=outcome, expected=advice.expected, realised=realised)
    await span.emit(brought, agent="engine")


async def advise(
    run: Engine, span: Span, situation: Situation, roles: Roles, attempt: Attempt, stopping: Stopping | None = None
) -> tuple[Advice, int]:
    """Returns the engine's own reason to stop or, if there is none, the Verifier's diagnosis and route. The second value is the decision's seq."""
    advice = await roles.verifier.advise(span, situation, attempt)
    diagnosis = advice.diagnosis
    said = DiagnosisMade(candidate=attempt.number, method=advice.method, **diagnosis.payload())
    await span.emit(said.having(**cited(advice), **realised(advice)), agent="verifier")
    if stopping is not None:
        advice = stopping(run, situation, advice)
    await span.say("verifier", diagnosis.says() + "\n", advice.reason)
    decision = DecisionMade(route=advice.route, reason=advice.reason, expected=advice.expected, method=advice.method)
    decided = await span.emit(decision, agent="verifier")
    return advice, decided.seq


def cited(advice: Advice) -> dict[str, list[DocumentRef]]:
    """Returns the document passages that the diagnosis cites, if any."""
    return {"documents": [DocumentRef(id=p.id, title=p.title) for p in advice.documents]} if advice.documents else {}


def realised(advice: Advice) -> dict[str, dict[str, float]]:
    """Returns the time that this program spends in each plan group, for comparison with the group's floor and expected time. Omits the field if no
    times are known."""
    longest = sorted(advice.groups, key=lambda group: -advice.groups[group])[:MOST_GROUPS]
    return {"groups": {group: advice.groups[group] for group in longest}} if longest else {}


async def unusable(span: Span, situation: Situation, refused: Unusable, advice: Advice | None, decision: int | None) -> Turn:
    """Treats a model's replies without a program as a failed attempt. The next prompt shows the reason."""
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
    """Returns a candidate from any of the coder's methods (`write`), verified but not diagnosed. If there is no program, records the reason on the
    span and returns None."""
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
