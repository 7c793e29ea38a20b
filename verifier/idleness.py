"""Is the program's runner at rest while another side is timed? One that burns the processor or the GPU then makes baselines slow and itself fast.

The evidence is the judge's own: the kernel's count of the runner's processor time, and how long a tiny kernel of the judge's waits for the GPU. A
runner's idle threads may spin for some milliseconds after its own call; by the time the next side has its inputs they sleep.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

from verifier.asking import Party

BUSY = 0.15  # share of one processor over all windows
LEAST_NS = 3_000_000  # below that a single tick of the scheduler, charged late, could be all of it
GPU_WINDOWS = 8
GPU_TIMES, GPU_LEAST_NS = 5, 600_000  # of the usual wait, and a part of a time slice (2 ms): contexts that both have work take turns


@dataclass
class Watch:
    """Watches one party through windows that open when another side has its inputs and close when it has answered."""

    party: Party
    used_ns: int = 0
    open_ns: int = 0
    waits_ns: list[int] = field(default_factory=list)  # of the judge's tiny kernel, one a window; empty on the CPU
    usual_wait_ns: int | None = None
    works_on: bool = False  # the device, with the party's processes gone
    _opened: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.usual_wait_ns = self.party.device.usual_wait_ns()

    def open(self, waited: int | None) -> None:
        """`waited`: for how long a tiny kernel of the judge's waited just now."""
        if waited is not None:
            self.waits_ns.append(waited)
        used = self.party.spawned.cpu_ns()
        self._opened = None if used is None else (time.monotonic_ns(), used)

    def close(self) -> None:
        if self._opened is None:
            return
        used = self.party.spawned.cpu_ns()
        if used is not None:
            self.open_ns += time.monotonic_ns() - self._opened[0]
            self.used_ns += used - self._opened[1]
        self._opened = None

    def finding(self) -> str:
        """Empty, or a sentence with the figures."""
        if self.used_ns > max(BUSY * self.open_ns, LEAST_NS):
            share = self.used_ns / max(self.open_ns, 1)
            return f"while the baselines were timed the program used {share:.0%} of a processor: it must be at rest between its calls"
        wait = self.long_wait()
        if not wait or self.works_on:
            return ""
        assert self.usual_wait_ns is not None
        usual = self.usual_wait_ns / 1e6
        return (
            f"while the baselines were timed a tiny kernel of the judge's waited {wait / 1e6:.2f} ms for the GPU, usually {usual:.2f}: "
            "the program must leave the GPU alone between its calls"
        )

    def long_wait(self) -> float:
        """How long a tiny kernel waited, in ns, if that is too long; else 0."""
        if self.usual_wait_ns is None or len(self.waits_ns) < GPU_WINDOWS:
            return 0.0
        wait = statistics.median(self.waits_ns)
        return wait if wait > max(GPU_TIMES * self.usual_wait_ns, GPU_LEAST_NS) else 0.0

    def crowded(self) -> str:
        """Empty, or a sentence: somebody else is at work on the device."""
        wait = self.long_wait()
        if not wait or not self.works_on:
            return ""
        return (
            f"while the baselines were timed a tiny kernel of the judge's waited {wait / 1e6:.2f} ms for the GPU, which works on with the "
            "program's processes gone: another process keeps it busy (see nvidia-smi)"
        )
