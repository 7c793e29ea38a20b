"""The ways in which an evaluation ends: the causes that stop it, the meaning of a runner's failure for the program, and the reasons why a report
lacks a figure."""

from __future__ import annotations

from verifier.allocation import failed_allocation
from verifier.judge.party_failure import PartyFailure, without_gpu
from verifier.report import Report, Status


class TaskUnusable(Exception):
    """Raised when the task, rather than the program, prevents a verdict."""


class Ended(Exception):
    """Raised when a stage ends the evaluation with a verdict."""

    def __init__(self, status: Status, message: str):
        super().__init__(message)
        self.status = status
        self.message = message


def hint(error_class: str, message: str) -> str:
    """Explains what a program's exception means in this context. Returns an empty string if the exception's own message is clear."""
    if error_class == "ModuleNotFoundError":
        return "; the verifier's host has no such package: install it there beside torch, or write the kernel in CUDA C++, Triton or C++"
    if error_class == "FileNotFoundError":
        return "; a program is one source file and comes without other files: keep texts that it reads in the program itself"
    if error_class == "PermissionError" or "Read-only file system" in message:
        return "; a program may write only to its own folder: Path(__file__).parent, or tempfile.gettempdir()"
    return ""


def verdict_of(failure: PartyFailure, shared: bool = False) -> tuple[Status, str]:
    """Returns the verdict that a party's failure implies for the program. There is no verdict if another side failed, or if others took the memory:
    verifications that share the device (`shared`), or any process, if the program would have fitted into its fair share."""
    where = f"line {failure.line}: " if failure.line else ""
    if failure.whose == "rival":
        return "inconclusive", f"the program that it is timed against failed: {failure.message}"
    if failure.request == "memory":
        return "infrastructure_error", failure.message
    if failure.request in ("start", "role"):
        return "infrastructure_error", f"a confined process could not be started: {failure.message} {failure.detail[-500:]}".strip()
    if failure.whose not in ("", "program"):
        other = "reference" if failure.whose == "reference" else f"{failure.whose} baseline"
        return "infrastructure_error", f"the {other} failed, which says nothing about the program: {failure.message[:600]}"
    if shared and failure.error_class == "OutOfMemoryError":
        return (
            "inconclusive",
            f"this host is busy: other verifications use the device, and too little of its memory was free: {failure.message[:300]}",
        )
    allocation = failed_allocation(failure.message) if failure.error_class == "OutOfMemoryError" else None
    if allocation is not None and allocation.crowded_out:
        return "inconclusive", f"this host is busy: other processes hold most of the device's memory: {failure.message[:300]}"
    if failure.kind == "raised":
        if failure.error_class == "RequestError" or "was not built beforehand" in failure.message:
            return "build_failed", f"{where}{failure.message}"
        step = {"import": "imported", "construct": "constructed"}.get(failure.request, "called")
        said = without_gpu(failure.message)[:600] + hint(failure.error_class, failure.message)
        return "crashed", f"{where}{failure.error_class} when the program was {step}: {said}"
    if failure.kind == "timed_out":
        return "timed_out", f"{where}{failure.message}"
    return "crashed", f"{where}{failure.message}"


def give_reasons(report: Report) -> None:
    """Adds a reason for every figure that a report lacks."""
    for name in ("timing", "own_share", "program_class", "floor_ms", "floor_fraction", "peak_bytes", "build", "weights"):
        if getattr(report, name) is None:
            report.reasons.setdefault(name, report.reasons.get("own_share", "") if name == "program_class" else "the evaluation ended before")
