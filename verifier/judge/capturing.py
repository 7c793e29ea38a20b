"""The judge's side of the `capture` job. The reference exports the graph; this module validates the graph as data and caches it."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from pydantic import ValidationError

from verifier.graph import Capture
from verifier.judge.pool import data_folder
from verifier.judge.session import ReferenceSession

MAX_CAPTURE = 64 << 20
REMEMBERED, REMEMBERED_BYTES = 16, 128 << 20  # limits on cached graphs, as JSON; the cache saves a task's next run several seconds of exporting


class CaptureBroken(ValueError):
    """Raised when the reference's answer is not a capture."""


class Captures:
    """A cache of this judge's recent captures. It lives only as long as the process, so it never serves a capture made with another library
    version."""

    def __init__(self, data_dir: Path):
        self.data_dir = data_dir
        self._known: OrderedDict[tuple[str, str, str], tuple[Capture, int]] = OrderedDict()

    def known(self, task_sha: str, mode: str, precision: str) -> Capture | None:
        """Returns a cached capture, without using a reference."""
        key = (task_sha, mode, precision)
        if key not in self._known:
            return None
        self._known.move_to_end(key)
        return self._known[key][0]

    def take(self, session: ReferenceSession, task_sha: str, mode: str, seed: int) -> Capture:
        """Gets a capture from a reference. Raises the same exceptions as `take_capture`."""
        capture, nbytes = take_capture(session, self.data_dir, task_sha, mode, seed)
        if capture.graph is not None:  # failures are not cached, since a later attempt may succeed
            self._known[task_sha, mode, session.precision] = capture, nbytes
        while len(self._known) > REMEMBERED or sum(size for _, size in self._known.values()) > REMEMBERED_BYTES:
            self._known.popitem(last=False)
        return capture


def take_capture(session: ReferenceSession, data_dir: Path, task_sha: str, mode: str, seed: int) -> tuple[Capture, int]:
    """Returns a capture and its size as JSON. Raises `PartyFailure` for the task's faults."""
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
    return capture, len(frame.raw)


def known_capture(data_dir: Path, task_sha: str, mode: str) -> Capture | None:
    try:
        return Capture.model_validate_json((data_dir / "captures" / f"{task_sha}-{mode}.json").read_bytes())
    except (OSError, ValidationError):
        return None
