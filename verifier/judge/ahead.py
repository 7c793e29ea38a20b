"""Starts baselines while the program is still being built and tried: max-autotune's autotuning takes longer than all the rest of an evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from verifier.judge.memory import too_little
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Pool, Role

if TYPE_CHECKING:
    from verifier.judge.asking import Party
    from verifier.timing.blocks import Side


class Ahead:
    """One such baseline in a thread of its own; `bring_up` does the work in its process. With `calls`, the process compiles and holds a call's
    memory."""

    def __init__(self, pool: Pool, terms: tuple[Role, str, str], bring_up: Callable[[Party], Side], calls: bool):
        self.pool = pool
        self.calls = calls
        self.seconds = 0.0  # seconds that it took, whether it failed or not
        self._bring_up = bring_up
        self._side: Side | None = None
        self._failure: Exception | None = None
        self._begun = time.monotonic()
        self.coming = pool.begin(terms)
        self.party = self.coming.party
        self.coming.then(self._work)

    def _work(self, party: Party) -> None:
        try:
            self.pool.device.adopt_thread()
            with self.pool.gate.working():
                self._side = self._bring_up(party)
        except torch.OutOfMemoryError:
            self._failure = PartyFailure("memory", too_little(self.pool.device, "for the judge's part of a first call"), request="memory")
        except Exception as failure:  # whoever asks for the side gets it as if it had happened there
            self._failure = failure
        self.seconds = time.monotonic() - self._begun

    def wait(self) -> None:
        """Waits for it. While another judge measures, its thread may stand still, and this thread must not keep the device from that judge."""
        with self.pool.gate.idle():
            try:
                self.coming.arrive()
            except PartyFailure as failure:  # it has not yet taken its role
                self._failure = failure

    def side(self) -> Side:
        """Returns the side after `wait`. Raises what went wrong, mostly `PartyFailure`."""
        if self._failure is not None:
            raise self._failure
        assert self._side is not None
        return self._side

    def end(self) -> None:
        """Ends it when nobody wants it any more."""
        self.pool.dismiss(self.party)
        self.wait()
