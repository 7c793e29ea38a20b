"""Defines what is large, and keeps the ledger of a verification: who holds how many bytes of a device at each moment.

Values of more than `LARGE` bytes are never copied where they can be lent, and nobody keeps them for later. The judge fetches results as the very
memory that the reference wrote to, which it then owns alone. Inputs are shown to the reference where they lie. An input that is needed again is drawn
again under its seed. Outputs of the previous call are known by their fingerprint. Baselines' outputs are compared where they lie, before the next
call. A program always has memory of its own for inputs and outputs: it may write to both.

`docs/reference/verifier.md` has the same as a table, `tests/integration/verifier/test_ledger.py` holds the stages to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verifier.devices.base import Device

GIB = 1 << 30
LARGE = GIB  # bytes of inputs or outputs above which memory is worth more than the time to map it anew
CHUNKS = 3 * GIB  # working memory of the judge: comparisons and fingerprints take tensors in pieces
EASE = 8  # factor on the exchanged bytes: where less memory is free, caches are given back


def large(nbytes: int) -> bool:
    return nbytes > LARGE


def too_little(device: Device, what: str) -> str:
    """Words the message for a failure that is due to the device, not to a program."""
    free, total = device.free_bytes(), device.total_bytes()
    if free is None or total is None:
        return f"{device.name} has too little memory {what}"
    return f"{device.name} has too little memory {what}: {free / GIB:.1f} of {total / GIB:.1f} GiB are free beside the verifier's other processes"


@dataclass(frozen=True)
class Ledger:
    """The ledger, in bytes. `eager` and `precise` are the peaks of a call in PyTorch and in fp64 beyond inputs and state, outputs included."""

    inputs: int
    outputs: int
    state: int
    eager: int
    precise: int
    process: int = 0  # for each process that uses the device

    @property
    def exchanged(self) -> int:
        return self.inputs + self.outputs

    def learning(self) -> int:
        """Before there is a program. Judge: two sets of inputs and outputs, and a copy of one output during comparison. Reference: the call, on
        copies of its inputs."""
        judge = 2 * self.inputs + 3 * self.outputs
        return judge + self.inputs + self.eager + self._processes(2)

    def precise_run(self) -> int:
        """Judge: the inputs. Reference: the call in fp64. Runner: arenas, the outputs of its last call."""
        return self.inputs + self.state + self.precise + self._runner() + self._processes(4)

    def call(self) -> int:
        """Judge: inputs, eager's outputs and fp64's. Runner: the call, beside the outputs of the one before."""
        return self.inputs + 3 * self.outputs + self.state + self._runner() + self.eager + self._processes(4)

    def comparison(self) -> int:
        """After the same call, when the judge has a copy of its outputs."""
        return self.inputs + 4 * self.outputs + self.state + self._runner() + self.outputs + self._processes(4)

    def timed(self, sides: int = 2) -> int:
        """During timed calls. Judge: inputs, and the program's outputs. Each side: arenas and the memory of its calls. Reference: only its state."""
        return self.exchanged + self.state + sides * (self.exchanged + self.state + self.eager) + self._processes(2 + sides)

    def observed(self) -> int:
        """During observation. The program's process has given back the memory of its calls; the baseline has ended. Judge: the inputs. Another
        process calls variants of the program, and keeps outputs twice."""
        observer = self.inputs + self.state + self.eager + 2 * self.outputs
        return self.inputs + 2 * self.state + self.exchanged + observer + self._processes(4)

    def program(self) -> int:
        """Memory of a program's process, assuming that the program needs no more than PyTorch."""
        return self.process + self._runner() + self.eager

    def peak(self) -> int:
        return max(self.learning(), self.precise_run(), self.call(), self.comparison(), self.timed(), self.observed())

    def _runner(self) -> int:
        return self.exchanged + self.state + self.outputs

    def _processes(self, count: int) -> int:
        return count * self.process + (CHUNKS if self.process else 0) + 2 * self.state  # the judge's copies: as constructed, and as randomised
