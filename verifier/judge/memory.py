"""Defines the size above which values count as large, and keeps a memory ledger that shows which process holds how many bytes of device memory in
each phase of a verification.

Values larger than `LARGE` bytes are never copied if they can be lent, and they are never kept for later. The judge fetches results by taking over the
memory that the reference wrote to. The reference maps inputs in place. An input that is needed again is redrawn from its seed. Outputs of the
previous call are checked by their fingerprint. Baseline outputs are compared in place, before the next call. A program always has separate memory for
inputs and outputs, because it may write to both.

`docs/reference/verifier.md` has the same information as a table, and `tests/integration/verifier/test_ledger.py` checks that the stages respect it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verifier.devices.base import Device

GIB = 1 << 30
LARGE = GIB  # bytes of inputs or outputs above which the memory saved is worth the time to map it again
CHUNKS = 3 * GIB  # working memory of the judge: comparisons and fingerprints process tensors in pieces
EASE = 8  # multiple of the exchanged bytes; if less memory is free, caches are released


def large(nbytes: int) -> bool:
    return nbytes > LARGE


def too_little(device: Device, what: str) -> str:
    """Builds the message for a failure caused by the device rather than by a program."""
    free, total = device.free_bytes(), device.total_bytes()
    if free is None or total is None:
        return f"{device.name} has too little memory {what}"
    return f"{device.name} has too little memory {what}: {free / GIB:.1f} of {total / GIB:.1f} GiB are free besides the verifier's other processes"


@dataclass(frozen=True)
class Ledger:
    """The ledger, in bytes. `eager` and `precise` are the peak memory of a PyTorch call and of an fp64 call. They exclude inputs and state but
    include outputs."""

    inputs: int
    outputs: int
    state: int
    eager: int
    precise: int
    process: int = 0  # memory of each process that uses the device

    @property
    def exchanged(self) -> int:
        return self.inputs + self.outputs

    def learning(self) -> int:
        """Returns the bytes used before there is a program. The judge holds two sets of inputs and outputs, and a copy of one output during
        comparison. The reference makes the call on copies of its inputs."""
        judge = 2 * self.inputs + 3 * self.outputs
        return judge + self.inputs + self.eager + self._processes(2)

    def precise_run(self) -> int:
        """Returns the bytes used by the fp64 run. The judge holds the inputs, the reference makes the call in fp64, and the runner holds arenas and
        the outputs of its last call."""
        return self.inputs + self.state + self.precise + self._runner() + self._processes(4)

    def call(self) -> int:
        """Returns the bytes used by a call. The judge holds the inputs and the outputs of eager and fp64; the runner makes the call while it holds
        the previous outputs."""
        return self.inputs + 3 * self.outputs + self.state + self._runner() + self.eager + self._processes(4)

    def comparison(self) -> int:
        """Returns the bytes used after that call, when the judge has a copy of its outputs."""
        return self.inputs + 4 * self.outputs + self.state + self._runner() + self.outputs + self._processes(4)

    def timed(self, sides: int = 2) -> int:
        """Returns the bytes used during timed calls. The judge holds the inputs and the program's outputs, each side holds its arenas and the memory
        of its calls, and the reference holds only its state."""
        return self.exchanged + self.state + sides * (self.exchanged + self.state + self.eager) + self._processes(2 + sides)

    def observed(self) -> int:
        """Returns the bytes used during observation. The program's process has released the memory of its calls, and the baseline has ended. The
        judge holds the inputs. Another process calls variants of the program and keeps outputs twice."""
        observer = self.inputs + self.state + self.eager + 2 * self.outputs
        return self.inputs + 2 * self.state + self.exchanged + observer + self._processes(4)

    def program(self) -> int:
        """Returns the memory of a program's process, assuming that the program needs no more than PyTorch."""
        return self.process + self._runner() + self.eager

    def peak(self) -> int:
        return max(self.learning(), self.precise_run(), self.call(), self.comparison(), self.timed(), self.observed())

    def _runner(self) -> int:
        return self.exchanged + self.state + self.outputs

    def _processes(self, count: int) -> int:
        return count * self.process + (CHUNKS if self.process else 0) + 2 * self.state  # the judge's copies: one as constructed and one as randomised
