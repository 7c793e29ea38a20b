"""Is the program's runner at rest between its calls? One that burns the processor or the GPU then makes baselines slow and itself fast.

The evidence is the judge's own: the kernel's count of the runner's processor time, and how long a tiny kernel of the judge's waits for the GPU. A
runner's idle threads may spin for some milliseconds after its own call; the judge looks when they have had time to fall asleep. When it has
looked, the runner stands still until its own turn: a thread that works for a tenth of the time on the processor on which eager is timed stays
below any limit that a busy host can keep, and makes eager slower all the same.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from verifier.judge.asking import Party

BUSY = 0.15  # share of one processor over all windows
LEAST_NS = 3_000_000  # below that a single tick of the scheduler, charged late, could be all of it
GPU_WINDOWS = 8  # of the calls of other sides; of looks there may be
GPU_LOOKS = 6
TICK_SECONDS = time.clock_getres(6)  # CLOCK_MONOTONIC_COARSE moves on by the scheduler's tick, as the count of a running thread's time does
SETTLE_SECONDS = 0.008  # until idle threads sleep
LOOK_SECONDS = max(0.002, 1.25 * TICK_SECONDS)  # what a look then takes: a whole tick, so that none misses a thread that runs through all of it
GPU_TIMES, GPU_LEAST_NS = 5, 600_000  # of the usual wait, and a part of a time slice (2 ms): contexts that both have work take turns


@dataclass
class Watch:
    """Watches one party through windows that lie between its turns and those of the sides that are compared with it."""

    party: Party
    used_ns: int = 0
    open_ns: int = 0
    waits_ns: list[int] = field(default_factory=list)  # of the judge's tiny kernel, one before each call of another side; empty on the CPU
    look_waits_ns: list[int] = field(default_factory=list)  # and while the party could still work
    usual_wait_ns: int | None = None
    works_on: bool = False  # the device, with the party's processes gone
    still: bool = False  # frozen
    _opened: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.usual_wait_ns = self.party.device.usual_wait_ns()

    def waited(self, nanoseconds: int | None) -> None:
        """For how long a tiny kernel of the judge's waited just now."""
        if nanoseconds is not None:
            self.waits_ns.append(nanoseconds)

    def open(self, waited: int | None = None) -> None:
        if waited is not None:
            self.look_waits_ns.append(waited)
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

    def stop(self) -> None:
        """Closes the window; from now on the party stands still."""
        self.close()
        self.still = True
        self.party.spawned.freeze()

    def go(self) -> None:
        if self.still:
            self.still = False
            self.party.spawned.thaw()

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
        if self.usual_wait_ns is None:
            return 0.0
        enough = ((self.waits_ns, GPU_WINDOWS), (self.look_waits_ns, GPU_LOOKS))
        wait = max((statistics.median(waits) for waits, count in enough if len(waits) >= count), default=0.0)
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


def pause(watches: Sequence[Watch], looks: bool) -> None:
    """Between the turns of the watched parties and those of the others. After the former the judge `looks` whether they are at rest, and they stand
    still from then on; after the latter it waits as long, so that neither kind alone comes after a pause. Nobody is told of it."""
    device = watches[0].party.device
    for watch in watches if not looks else ():
        watch.go()
    device.settle()
    time.sleep(SETTLE_SECONDS)
    waited = device.wait_ns()
    for watch in watches if looks else ():
        watch.open(waited)
    time.sleep(LOOK_SECONDS)
    for watch in watches if looks else ():
        watch.stop()


@contextlib.contextmanager
def ending(watches: Sequence[Watch]) -> Iterator[None]:
    """However it ends, nobody is left standing."""
    try:
        yield
    finally:
        for watch in watches:
            watch.go()
