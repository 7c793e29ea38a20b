"""The process that was timed, with one of its timed calls, which is made again when the clock has stopped counting."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from verifier.correctness.fingerprint import Fingerprint
from verifier.timing.blocks import Call, Caller, Side, kept

Check = Callable[[int, Side, Call], None]
AGAIN = 0.25  # chance of a timed call to take the place of the one that is remembered


@dataclass
class TimedProcess:
    """`seed` drew the inputs of the remembered call, and seeded its generators."""

    side: Side
    seed: int | None = None
    outputs: list[torch.Tensor | Fingerprint] = field(default_factory=list)
    _seeds: dict[int, int] = field(default_factory=dict)

    @property
    def caller(self) -> Caller:
        return self.side.caller

    def drawn(self, number: int, seed: int) -> None:
        self._seeds = {**({number - 1: self._seeds[number - 1]} if number - 1 in self._seeds else {}), number: seed}

    def noting(self, check: Check) -> Check:
        """The same check, which remembers a call that nobody can foresee."""

        def both(number: int, side: Side, call: Call) -> None:
            if side is self.side and number in self._seeds and (self.seed is None or secrets.randbelow(1000) < AGAIN * 1000):
                self.seed, self.outputs = self._seeds[number], [kept(output) for output in call.outputs]
            check(number, side, call)

        return both
