"""Determines the outcome of a run from its last verdict, with the wording for its headline."""

from __future__ import annotations

from collections import Counter

from agents.unchanged import unchanged
from verifier.jobs import Profile
from verifier.report import Report
from verifier.task import Admission

NOT_MEASURED = "nothing wrong was found, but its time is unknown: try again when the host is quieter"


def outcome_of(
    report: Report, task_source: str, program_source: str, reference: Profile | None = None, profile: Profile | None = None
) -> tuple[str, str]:
    """Returns the outcome and its description for a passing program with a speedup. A program that calls only the task's own operators is never
    described as faster than the task."""
    assert report.speedup is not None
    if unchanged(task_source, program_source):
        return "matched", "is the task's own code, so it is not called faster"
    # On a GPU, a CUDA graph may launch the same kernels without involving the host.
    if report.environment.device == "cpu" and not report.own_share and same_operators(reference, profile):
        return "matched", "calls the same operators as the task, each as often, so it is not called faster"
    return ("improved", "is correct and faster") if report.speedup.low > 1 else ("matched", "is correct, but not faster")


def same_operators(one: Profile | None, other: Profile | None) -> bool:
    """Returns whether both profiles come from the same tool and contain the same torch operators with equal counts per call. Returns False if either
    is missing."""
    if one is None or other is None or one.tool != other.tool or not one.kernels or any(kernel.own for kernel in other.kernels):
        return False

    def counted(profile: Profile) -> Counter[str]:
        found: Counter[str] = Counter()
        for kernel in profile.kernels:
            found[kernel.name] += round(kernel.calls / max(profile.iterations, 1))
        return found

    return counted(one) == counted(other)


def tried(admission: Admission | None) -> str:
    """Returns the shapes that a headline applies to, or "" if they are unknown."""
    return f" Tried with inputs {', '.join(admission.shapes)}." if admission is not None and admission.shapes else ""
