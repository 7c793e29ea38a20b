"""Compiles raw kernels in a party that does not use torch, while every other party is still importing torch."""

from __future__ import annotations

import threading
import time

from verifier.build.artefacts import Artefacts, checked_index
from verifier.build.raw import RawRequest
from verifier.channel import MAX_ARTEFACTS
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Pool


class RawBuild:
    """Starts immediately. It does not report failures; the builder reports them later."""

    def __init__(self, pool: Pool, requests: list[RawRequest]):
        self.pool = pool
        self.requests = requests
        self.party = pool.start("compiler")
        self._artefacts = Artefacts([], b"", 0.0)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def result(self) -> Artefacts:
        """Waits for the libraries. The result is empty if any kernel does not compile."""
        self._thread.join()
        return self._artefacts

    def close(self) -> None:
        """Terminates the party. Must be called from the thread that created this object."""
        self.party.spawned.kill()
        self._thread.join(timeout=10)
        self.pool.dismiss(self.party)

    def _work(self) -> None:
        party = self.party
        wanted = [(request.language, request.source, list(request.flags)) for request in self.requests]
        try:
            party.become("compiler")
            begin = time.monotonic()
            message = {"requests": wanted, "variables": party.device.variables("builder")}
            frame = party.ask("compile", message, self.pool.limits.build, max_raw=MAX_ARTEFACTS)
            index = checked_index(frame.message.get("artefacts"), len(frame.raw))
            self._artefacts = Artefacts(index, frame.raw, round(time.monotonic() - begin, 3))
        except (PartyFailure, ValueError):
            pass
