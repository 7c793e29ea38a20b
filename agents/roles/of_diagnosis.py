"""Describes a diagnosis to a model: its class, the evidence for it, and further faults."""

from __future__ import annotations

from collections.abc import Iterator

from agents.diagnosis import Cause, Diagnosis, Evidence
from agents.roles.names import short_name
from agents.roles.situation import NOT_JUDGED, Advice
from verifier.profiling.diagnosing.defects import BY_LITTLE

MEASURED = ("time a call", "time over floor", "share of ")  # already shown next to a diagnosis, so not repeated
SAID_IN_TEXT = {  # evidence that the bottleneck class's sentence already includes
    "memory": ("least traffic,",), "compute": ("the task's arithmetic,",), "latency": ("least traffic,", "the task's arithmetic,"),
}  # fmt: skip
GRADES = {"counters": "counters", "timeline": "a timeline", "static": "compiled code and the clock"}
SHOWN_EVIDENCE = 4  # maximum number of lines of a diagnosis; more figures lead to worse decisions (KernelPro)


def diagnosis_text(found: Diagnosis, advice: Advice | None = None) -> str:
    if found.bottleneck == "defect":
        name = "rounding beyond the bound, or a small defect" if found.text.startswith(BY_LITTLE) else "defect"
        lines = [f"Class: {name}. {_without_message(found)}".strip()]
    else:
        lines = [f"Class: {found.bottleneck} (known from {GRADES[found.grade]}). {found.text}".strip()]
        said = (*MEASURED, *SAID_IN_TEXT.get(found.bottleneck, ()))
        telling = [evidence for evidence in found.evidence if not evidence.figure.startswith(said)]
        lines += [f"- {evidence_line(evidence)}" for evidence in telling[:SHOWN_EVIDENCE]]
        lines += _further(found)
    if advice is not None and advice.reason and not advice.reason.startswith(NOT_JUDGED):
        lines.append(f"Verifier: {advice.reason}")
    return "\n".join(lines)


def _without_message(found: Diagnosis) -> str:
    """Returns a defect's text without the verdict's message, because every prompt about a failed program already includes that message as
    evidence."""
    message = next((evidence.means for evidence in found.evidence if evidence.figure == "status"), "")
    return " ".join(found.text.replace(message, " ").split()) if message else found.text


def _further(found: Diagnosis) -> Iterator[str]:
    """Yields the faults that the bottleneck class's sentence omits, because remedies for them are offered too. Kernels with the same fault share a
    line."""
    time_us = next((evidence.value for evidence in found.evidence if evidence.figure == "time a call"), None)
    if not isinstance(time_us, (int, float)) or not time_us:
        return
    together: dict[str, list[Cause]] = {}
    for cause in found.faults:
        if cause.says not in found.text:
            together.setdefault(cause.says, []).append(cause)
    for says, causes in together.items():
        where = ", ".join(short_name(cause.kernel) for cause in causes if cause.kernel)
        costs = ", ".join(f"{100 * cause.lost_us / time_us:.0f} %" for cause in causes)
        yield f"- also, about {costs} of the call{f', in {where}' if where else ''}: {says}"


def evidence_line(evidence: Evidence) -> str:
    value = evidence.value
    if not isinstance(value, str):
        value = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    unit = f" {evidence.unit}" if evidence.unit else ""
    return f"{evidence.figure}: {value}{unit}" + (f" ({evidence.means})" if evidence.means else "")
