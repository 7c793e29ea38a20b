"""The end of every workflow: the winner is measured again before it becomes the result. A run's only program is an exception, because there was no
selection that could favour a lucky measurement."""

from __future__ import annotations

from agents.budget import OutOfBudget
from agents.roles.compiled import Compiled
from agents.roles.situation import Attempt, Situation
from agents.roles.verifier import sentence
from agents.run import Engine, Finish
from agents.strategies.ledger import entries, records
from agents.workflows.measuring import measure, verdict
from agents.workflows.outcome import NOT_MEASURED, outcome_of, tried
from agents.workflows.yielding import TAKEN, yielded
from compiler import Options
from compiler.planning.tuned import fingerprints, tuned_by
from verifier.report import Report
from verifier.source import sha256

MAX_CONFIRMED = 3  # maximum number of candidate winners tried in the full tier before the run gives up


async def confirm(run: Engine, situation: Situation, reason: str, spent: bool) -> Finish:
    """Measures the winner again, against all baselines and with fresh seeds. If it fails, tries the next program. `spent`: whether the search ended
    because a budget was used up."""
    ranked = sorted((a for a in situation.attempts if a.passed), key=situation.rank, reverse=True)
    ranked = ranked or [a for a in reversed(situation.attempts) if a.report is not None and a.report.host_busy]  # try again, because time has passed
    if not ranked:
        last = situation.attempts[-1].report if situation.attempts else None
        return Finish(
            "out_of_budget" if spent else "failed", f"no program passed; {reason}" + (f" (the last: {verdict(last)})"[:1500] if last else "")
        )
    try:
        return await confirm_one_of(run, situation, ranked[:MAX_CONFIRMED], reason)
    except OutOfBudget as error:
        best = ranked[0]
        return Finish("out_of_budget", f"{error}: candidate {best.number} ({verdict(best.verdict)}, tier quick) is not confirmed", best.number)


async def confirm_one_of(run: Engine, situation: Situation, ranked: list[Attempt], reason: str) -> Finish:
    """Confirms the first program in `ranked` that holds up. `ranked` contains the passing programs, best first."""
    known = sole(situation)
    async with run.span("confirm", "The only program" if known else "Confirm the winner on fresh seeds", "verifier") as span:
        for attempt in ranked:
            report = known or await measure(span, attempt.edit.source, attempt.number, "full")
            how = "the only program, measured against all baselines" if known else "confirmed against all baselines"
            await span.say("verifier", f"Candidate {attempt.number}, {how}: {verdict(report)}.")
            if report.status != "passed" or report.speedup is None:
                continue
            attempt, report = await yielded(span, situation, attempt, report)
            assert report.speedup is not None, "only a program that passed takes the winner's place"
            await remember(run, situation, attempt)
            if run.settings.profiles == "winner" or (run.settings.profiles == "all" and attempt.profile is None):
                await span.profile(attempt.edit.source, attempt.number)
            span.summary = verdict(report)
            outcome, said = outcome_of(report, situation.task_source, attempt.edit.source, situation.reference, attempt.profile)
            left = situation.plan.data.left if situation.plan is not None and isinstance(situation.plan.data, Compiled) else ""
            left = (
                f"It is {attempt.edit.title}, which was faster than kernels of our own. {left}".rstrip() if attempt.edit.strategy == TAKEN else left
            )
            told = f"candidate {attempt.number} {said}: {verdict(report)}.{tried(situation.admission)} {sentence(reason)} {left}".rstrip()
            return Finish(outcome, told, attempt.number, report.speedup)
        if report.host_busy:
            span.skip("the host was too busy")
            best = ranked[0].number
            return Finish("inconclusive", f"candidate {best} was not confirmed: {report.message}; {NOT_MEASURED}. {sentence(reason)}"[:2000], best)
        span.fail("no candidate held on fresh seeds")
    doubtful = ranked[0].number if report.status == "inconclusive" else None
    return Finish("failed", f"no candidate was confirmed: {verdict(report)}"[:2000], doubtful)


def sole(situation: Situation) -> Report | None:
    """Returns the verdict on a run's only program if it already comes from the full tier (`attempting.only_one`). If there are several programs, the
    best one may have been lucky."""
    report = situation.attempts[0].report if len(situation.attempts) == 1 else None
    return report if report is not None and report.tier == "full" and not report.host_busy else None


async def remember(run: Engine, situation: Situation, winner: Attempt) -> None:
    """Records what this run learned, for later runs on the same device. This does not affect the current run, so it does not appear in the trace."""
    if run.experience is None or winner.report is None:
        return
    options, data = winner.edit.options, situation.plan.data if situation.plan is not None else None
    tuned = {}
    if isinstance(data, Compiled) and isinstance(options, Options) and options.group_knobs:
        tuned = tuned_by(options, fingerprints(data.plan, situation.task_source, options))
    found = records(entries(await run.journal.load()))
    await run.experience.learn(winner.report.environment.device_model, sha256(situation.task_source), found, tuned)
