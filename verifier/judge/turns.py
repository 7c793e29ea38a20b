"""A log of who had the device when, to find out why verifiers that share one are slow (`bench/turns.py`). With STITCH_TURNS=FOLDER in a verifier's
environment every judge writes a file of JSON lines there. Times are seconds of CLOCK_MONOTONIC, which all processes of a host share."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

WORTH_A_LINE = 0.1  # seconds: timed calls come by the thousand


class Turns:
    """The log; without a folder it does nothing."""

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
        """Records what this thread requests of a party. Until its next request it counts as busy with this one, or with the answer."""
        if self._file is not None:
            self._requests[threading.get_ident()] = request

    def answered(self, request: str, begun: float) -> None:
        """Records that the request of `begun` is answered now, whatever the outcome. Very short requests are left out."""
        if self._file is not None and time.monotonic() - begun >= WORTH_A_LINE:
            self._write("answered", request=request, begun=begun)

    def mark(self, name: str, **values: Any) -> None:
        """Records a moment within this judge's turn."""
        if self._file is not None:
            self._marks |= {name: time.monotonic(), **values}

    def measured(self, asked: float, turn: float, floor: float, begun: float) -> None:
        """Records a turn of this judge that ends now: when it was `asked` for, when it had the `turn`, when the others had released the `floor`, when
        the device was idle, and when the measurement had `begun`."""
        self._write("measured", asked=asked, turn=turn, floor=floor, begun=begun, **self._marks)
        self._marks = {}

    def closing(self) -> list[str]:
        """Records what all threads are doing; those that work on the device hold the floor."""
        return list(self._requests.values())

    def closed(self, seen: float, still: float, requests: list[str]) -> None:
        """Records that another judge's wish was `seen`, that this judge's threads had stopped at `still`, and that its parties are frozen now."""
        self._write("closed", seen=seen, still=still, requests=requests)

    def opened(self) -> None:
        self._write("opened")

    def _write(self, event: str, **values: Any) -> None:
        if self._file is not None:
            rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
            with self._lock:
                self._file.write(json.dumps({"event": event, "at": round(time.monotonic(), 4), **rounded}) + "\n")
