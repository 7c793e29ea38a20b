"""The `timing` stage: measures until the interval is credible.

A suspicious measurement is repeated once, in a fresh process with fresh seeds. If other work on the host also disturbs PyTorch's calls, nothing
suspicious is attributed to the program.
"""

from __future__ import annotations

from collections.abc import Callable

from verifier.correctness.calling import Subject
from verifier.correctness.trials import Trials
from verifier.integrity.excess import excess
from verifier.judge.endings import Ended
from verifier.report import Finding, Report, Severity, Timing
from verifier.timing.tournament import Tournament

ATTEMPTS = (1, 2)


def measure(tournament: Tournament, trials: Trials, report: Report, floor: float | None, fresh: Callable[[], Subject]) -> Timing:
    """Runs the stage. `fresh` creates a runner that has imported the program; `floor` is the minimum time that the device needs, in ms. Raises
    `Ended`."""

    def find(rule: str, message: str, severity: Severity = "note") -> None:
        report.findings.append(Finding(rule=rule, severity=severity, message=message, source="runtime"))

    for attempt in ATTEMPTS:
        assert trials.subject is not None
        timing, problem = tournament.run(trials.subject)
        outputs = tournament.outputs
        report.trials += outputs.failed
        if outputs.failed:
            raise Ended("wrong_result", f"{outputs.failed[0].name}: {outputs.failed[0].detail or 'the output is off'}")
        if outputs.rival_off:
            raise Ended("inconclusive", f"the program that it is timed against is wrong: {outputs.rival_off}")
        last = attempt == ATTEMPTS[-1]
        accused = tournament.burning or tournament.crowded or problem
        if tournament.disturbed and accused:
            find("busy-host", f"{tournament.disturbed}, which may be why {accused}")
            if last:
                raise Ended("inconclusive", tournament.disturbed)
        elif tournament.burning:
            find("burns-cpu", tournament.burning, "downgrade")
            if last:
                raise Ended("rejected", tournament.burning)
        elif tournament.crowded:
            find("crowded", tournament.crowded, "downgrade")
            if last:
                raise Ended("inconclusive", tournament.crowded)
        elif problem:
            find("clock", problem, "downgrade")
            if last:
                raise Ended("inconclusive", problem)
        elif tournament.busy:
            if last:
                raise Ended("inconclusive", tournament.busy)
            find("measured-again", f"{tournament.busy}: measured again in a fresh process")
        elif tournament.wide:
            if last:
                raise Ended("inconclusive", tournament.wide)
            find("measured-again", f"{tournament.wide}: measured again in a fresh process")
        else:
            flagged = excess(timing, floor)
            for rule, message in flagged if last else []:
                find(rule, f"{message}, again in a fresh process")
            if not flagged or last:
                break
            find("measured-again", f"{flagged[0][1]}: measured again in a fresh process with fresh seeds")
        trials.reconstruct(fresh())
    report.trials += outputs.checked
    if timing.charged_ms:
        find("charged", f"{timing.charged_ms:.4f} ms are added to each call of the program: {timing.charged_for}, beyond what eager needs there")
    return timing
