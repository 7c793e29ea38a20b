"""Verify a person's own program: no agents, one candidate, in the tier that the settings name."""

from __future__ import annotations

from agents.run import Engine, Finish
from agents.span import Ended
from agents.workflows.measuring import admit, measure, verdict


async def verify(run: Engine) -> Finish:
    if run.program_source is None:
        raise Ended("failed", "there is no program to verify")
    await admit(run)
    async with run.span("verify", "Verify the program", "verifier") as span:
        title = "The submitted program"
        await span.propose(run.program_source, number=1, parent=None, title=title, step="verify", changes="Written by a person.", strategy="")
        report = await measure(span, run.program_source, 1, run.settings.tier)
        await span.say("verifier", f"{verdict(report)}.")
        if report.status != "passed" or report.speedup is None:
            span.fail(verdict(report))
        else:
            span.summary = verdict(report)
            if run.settings.tier == "full":
                await span.profile(run.program_source, 1)
    if report.status != "passed" or report.speedup is None:
        return Finish("failed", f"the program did not pass: {verdict(report)}"[:2000])
    checked = "" if run.settings.tier == "full" else " (a quick check, against eager alone: no confirmed result)"
    if report.speedup.low > 1:
        return Finish("improved", f"the program is correct and faster: {verdict(report)}{checked}", 1, report.speedup)
    return Finish("matched", f"the program is correct, but not faster: {verdict(report)}{checked}", 1, report.speedup)
