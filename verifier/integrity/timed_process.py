"""The timed process with one of its timed calls, which is repeated after timing has finished."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from verifier.correctness.fingerprint import Fingerprint
from verifier.judge.session import Values
from verifier.timing.blocks import Caller, Side, kept
from verifier.timing.call import Call

Check = Callable[[int, Side, Call], None]
AGAIN = 0.25  # probability that a timed call replaces the remembered one


@dataclass
class TimedProcess:
    """The timed process. `seed` drew the inputs of the remembered call and seeded its generators. For a call in a series, `values` contains the
    inputs."""

    side: Side
    seed: int | None = None
    values: Values | None = None
    outputs: list[torch.Tensor | Fingerprint] = field(default_factory=list)
    _seeds: dict[int, int] = field(default_factory=dict)

    @property
    def caller(self) -> Caller:
        return self.side.caller

    def drawn(self, number: int, seed: int) -> None:
        self._seeds = {**({number - 1: self._seeds[number - 1]} if number - 1 in self._seeds else {}), number: seed}

    def noting(self, check: Check) -> Check:
        """Returns the same check, extended to remember one call that a program cannot predict."""

        def both(number: int, side: Side, call: Call) -> None:
            known = call.use is not None or number in self._seeds
            if side is self.side and known and (self.seed is None or secrets.randbelow(1000) < AGAIN * 1000):
                self._remember(number, call)
            check(number, side, call)

        return both

    def _remember(self, number: int, call: Call) -> None:
        self.outputs = [kept(output) for output in call.outputs]
        if call.use is None:
            self.seed, self.values = self._seeds[number], None
        else:
            self.seed, self.values = call.use.rng or 0, call.use.copied()
