"""A runner's request for a missing build. The process leaves a note for the judge and exits immediately, so compilers and programs never run
concurrently.

The note is written to memory that the judge created. A program can request a build in the middle of a timed call, when the process communicates only
with the clock. The note is untrusted: it serves only as data for a builder and as evidence for the report.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Any

STATUS = 86  # exit status of a process that leaves a note
SIZE = 16 << 20
_LENGTH = 8


class Wish:
    """The judge's side. The memory has a fixed size, which no party can change."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("wish", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, SIZE)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)

    def read(self) -> dict[str, Any] | None:
        """Returns the note, or null if nothing valid was written."""
        length = int.from_bytes(os.pread(self.fd, _LENGTH, 0), "little")
        if not 0 < length <= SIZE - _LENGTH:
            return None
        try:
            told = json.loads(os.pread(self.fd, length, _LENGTH))
        except (ValueError, RecursionError):
            return None
        return told if isinstance(told, dict) else None

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def tell(fd: int, told: dict[str, Any]) -> None:
    """Called in the runner. Writes the note and exits the process. Raises `ValueError` if the note is too long."""
    data = json.dumps(told).encode()
    if len(data) > SIZE - _LENGTH:
        raise ValueError("a build request is too large")
    os.pwrite(fd, len(data).to_bytes(_LENGTH, "little") + data, 0)
    os._exit(STATUS)
