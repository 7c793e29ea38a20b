"""Is the program's runner at rest while another side is timed? One that burns the processor or the GPU then makes baselines slow and itself fast.

The evidence is the judge's own: the kernel's count of the runner's processor time, and how long a tiny kernel of the judge's waits for the GPU. A
runner's idle threads may spin for some milliseconds after its own call; by the time the next side has its inputs they sleep.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

from verifier.pool import Party

BUSY = 0.15  # share of one processor over all windows
LEAST_NS = 3_000_000  # below that a single tick of the scheduler, charged late, could be all of it
GPU_BUSY = 0.3  # share of the windows in which the GPU was not free at once
GPU_WINDOWS = 8


@dataclass
class Watch:
    """Watches one party through windows that open when another side has its inputs and close when it has answered."""

    party: Party
    used_ns: int = 0
    open_ns: int = 0
    waits_ns: list[int] = field(default_factory=list)  # of the judge's tiny kernel, one a window; empty on the CPU
    usual_wait_ns: int = 0
    _opened: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.usual_wait_ns = self.party.device.usual_wait_ns()

    def open(self) -> None:
        wait = self.party.device.wait_ns()
        if wait is not None:
            self.waits_ns.append(wait)
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
        # Two contexts take turns of milliseconds: a kernel of a few microseconds that waits longer than ten times its usual wait found the GPU taken.
        taken = sum(wait > max(10 * self.usual_wait_ns, 500_000) for wait in self.waits_ns)
        if len(self.waits_ns) >= GPU_WINDOWS and taken > GPU_BUSY * len(self.waits_ns):
            wait = statistics.median(self.waits_ns) / 1e6
            return (
                f"while the baselines were timed the GPU was busy in {taken} of {len(self.waits_ns)} windows (a tiny kernel waited {wait:.2f} ms): "
                "the program must leave it alone between its calls"
            )
        return ""
