"""Verifies a program written by a person, as the only candidate and without agents, in the tier chosen in the settings."""

from __future__ import annotations

from agents.run import Engine, Finish
from agents.span import Ended
from agents.workflows.measuring import admit, measure, verdict
from agents.workflows.outcome import NOT_MEASURED, outcome_of, tried


async def verify(run: Engine) -> Finish:
    if run.program_source is None:
        raise Ended("failed", "there is no program to verify")
    admission = await admit(run, capture_follows=False)
    async with run.span("verify", "Verify the program", "verifier") as span:
        title = "The submitted program"
        await span.propose(run.program_source, number=1, parent=None, title=title, step="verify", changes="Written by a person.", strategy="")
        report = await measure(span, run.program_source, 1, run.settings.tier)
        await span.say("verifier", f"{verdict(report)}.")
        if report.status != "passed" or report.speedup is None:
            (span.skip if report.host_busy else span.fail)(verdict(report))
        else:
            span.summary = verdict(report)
            if run.settings.tier == "full":
                await span.profile(run.program_source, 1)
    if report.host_busy:
        return Finish("inconclusive", f"the program was not measured: {report.message}; {NOT_MEASURED}"[:2000])
    if report.status != "passed" or report.speedup is None:
        return Finish("failed", f"the program did not pass: {verdict(report)}"[:2000])
    checked = "" if run.settings.tier == "full" else " (a quick check, against eager alone: no confirmed result)"
    outcome, said = outcome_of(report, run.task_source, run.program_source)
    return Finish(outcome, f"the program {said}: {verdict(report)}{checked}.{tried(admission)}", 1, report.speedup)
