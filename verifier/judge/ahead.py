"""Starts baselines while the program is still being built and tested, because autotuning under max-autotune takes longer than the rest of an
evaluation."""

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
    """One such baseline, in a separate thread. `bring_up` does the work in the baseline's process. With `calls`, the process also compiles the model
    and holds the memory of one call."""

    def __init__(self, pool: Pool, terms: tuple[Role, str, str], bring_up: Callable[[Party], Side], calls: bool):
        self.pool = pool
        self.calls = calls
        self.seconds = 0.0  # seconds that startup took, whether or not it failed
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
        except Exception as failure:  # the failure is raised in the caller of `side`, as if it had occurred there
            self._failure = failure
        self.seconds = time.monotonic() - self._begun

    def wait(self) -> None:
        """Waits until the work is done. The thread may be halted while another judge measures, so the caller must not block that judge's access to
        the device."""
        with self.pool.gate.idle():
            try:
                self.coming.arrive()
            except PartyFailure as failure:  # the process has not taken its role yet
                self._failure = failure

    def side(self) -> Side:
        """Returns the side. Call this method after `wait`. Raises the exception with which the work failed, usually `PartyFailure`."""
        if self._failure is not None:
            raise self._failure
        assert self._side is not None
        return self._side

    def end(self) -> None:
        """Terminates the baseline when it is no longer needed."""
        self.pool.dismiss(self.party)
        self.wait()
