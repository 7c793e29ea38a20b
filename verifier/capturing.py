"""The job `capture`, on the judge's side: the reference exports the graph; here it is checked as data and kept."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from verifier.graph import Capture
from verifier.pool import data_folder
from verifier.session import ReferenceSession

MAX_CAPTURE = 64 << 20


class CaptureBroken(ValueError):
    """The reference's answer is not a capture."""


def take_capture(session: ReferenceSession, data_dir: Path, task_sha: str, mode: str, seed: int) -> Capture:
    """Raises `PartyFailure` for the task's faults."""
    session.load(seed)
    values = session.inputs(seed)
    message = {"tree": values.tree, **session.lend(values)}
    frame = session.party.ask("capture", message, session.limits.capture, max_raw=MAX_CAPTURE)
    try:
        capture = Capture.model_validate_json(frame.raw)
    except ValidationError:
        raise CaptureBroken("the captured graph is malformed") from None
    if capture.task != task_sha or capture.mode != mode:
        raise CaptureBroken("the captured graph is of another task")
    (data_folder(data_dir, "captures") / f"{task_sha}-{mode}.json").write_text(capture.model_dump_json())
    return capture


def known_capture(data_dir: Path, task_sha: str, mode: str) -> Capture | None:
    try:
        return Capture.model_validate_json((data_dir / "captures" / f"{task_sha}-{mode}.json").read_bytes())
    except (OSError, ValidationError):
        return None
