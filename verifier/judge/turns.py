"""A log of when each judge had the device. It is used to find out why verifiers that share a device are slow (`bench/turns.py`).

With STITCH_TURNS=FOLDER in a verifier's environment, every judge writes a file of JSON lines to that folder. Times are seconds of CLOCK_MONOTONIC,
which all processes of a host share.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

WORTH_A_LINE = 0.1  # seconds; there are thousands of timed calls, so shorter ones are not logged


class Turns:
    """The log. It does nothing if there is no folder."""

    def __init__(self, folder: Path | None, device: str):
        self._file = None
        self._marks: dict[str, Any] = {}
        self._requests: dict[int, str] = {}
        self._lock = threading.Lock()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"{device.replace(':', '-')}-{os.getpid()}.jsonl").open("a", buffering=1)

    @classmethod
    def asked_for(cls, device: str) -> Turns:
        folder = os.environ.get("STITCH_TURNS")
        return cls(Path(folder) if folder else None, device)

    def at(self, request: str) -> None:
        """Records this thread's request to a party. Until its next request, the thread counts as busy with this request or with the answer."""
        if self._file is not None:
            self._requests[threading.get_ident()] = request

    def answered(self, request: str, begun: float) -> None:
        """Records that the request sent at `begun` has been answered, regardless of the result. Very short requests are skipped."""
        if self._file is not None and time.monotonic() - begun >= WORTH_A_LINE:
            self._write("answered", request=request, begun=begun)

    def mark(self, name: str, **values: Any) -> None:
        """Records a moment within this judge's turn."""
        if self._file is not None:
            self._marks |= {name: time.monotonic(), **values}

    def measured(self, asked: float, turn: float, floor: float, begun: float) -> None:
        """Records a turn of this judge that ends now. The times say when the turn was `asked` for, when the judge got the `turn`, when the others
        released the `floor`, and when the device was idle and the measurement had `begun`."""
        self._write("measured", asked=asked, turn=turn, floor=floor, begun=begun, **self._marks)
        self._marks = {}

    def closing(self) -> list[str]:
        """Records what all threads are doing; threads that work on the device hold the floor."""
        return list(self._requests.values())

    def closed(self, seen: float, still: float, requests: list[str]) -> None:
        """Records that another judge's request was `seen`, that this judge's threads had stopped at `still`, and that its parties are now frozen."""
        self._write("closed", seen=seen, still=still, requests=requests)

    def opened(self) -> None:
        self._write("opened")

    def _write(self, event: str, **values: Any) -> None:
        if self._file is not None:
            rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
            with self._lock:
                self._file.write(json.dumps({"event": event, "at": round(time.monotonic(), 4), **rounded}) + "\n")
