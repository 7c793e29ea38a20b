"""Checks that the program's runner is idle between its calls. A runner that keeps the processor or the GPU busy slows the baselines down and so makes
its program look fast.

The judge gathers the evidence itself: the kernel's count of the runner's processor time, and how long a tiny kernel of the judge waits for the GPU.
A runner's idle threads may spin for a few milliseconds after a call, so the judge checks only once they have had time to fall asleep. On a busy
host they wait for a processor before they spin, so a runner that is awake when it is checked is checked again, ten times as long. After the check,
the runner is frozen until its next turn, because a thread that uses eager's processor for a tenth of the time would not exceed any limit that a
busy host can meet, yet would slow eager down.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from verifier.judge.asking import Party

BUSY = 0.15  # share of one processor over all windows
LEAST_NS = 3_000_000  # less could be due to a single scheduler tick that is charged late
GPU_WINDOWS = 8  # minimum number of waits during other sides' calls, as opposed to checks
GPU_LOOKS = 6
TICK_SECONDS = time.clock_getres(6)  # CLOCK_MONOTONIC_COARSE advances by scheduler ticks, like the accounting of a running thread
SETTLE_SECONDS = 0.008  # time until idle threads are asleep
LOOK_SECONDS = max(0.002, 1.25 * TICK_SECONDS)  # duration of a check: a whole tick, so that no check misses a thread that runs throughout
LONG_LOOK_SECONDS = 10 * LOOK_SECONDS  # of the check that follows if a runner was awake; both count
GPU_TIMES, GPU_LEAST_NS = 5, 600_000  # multiple of the usual wait, and part of a time slice (2 ms): two contexts that both have work take turns


@dataclass
class Watch:
    """Watches one party through windows between its turns and those of the sides that are compared with it."""

    party: Party
    used_ns: int = 0
    open_ns: int = 0
    waits_ns: list[int] = field(default_factory=list)  # waits of the judge's tiny kernel, one before each call of another side; empty on the CPU
    look_waits_ns: list[int] = field(default_factory=list)  # waits while the party could still work
    usual_wait_ns: int | None = None
    works_on: bool = False  # whether the device was still busy after the party's processes were gone
    still: bool = False  # whether the party is frozen
    awake: bool = False  # whether the party used more than its share in the last window
    _opened: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.usual_wait_ns = self.party.device.usual_wait_ns()

    def waited(self, nanoseconds: int | None) -> None:
        """Records how long one of the judge's tiny kernels has just waited."""
        if nanoseconds is not None:
            self.waits_ns.append(nanoseconds)

    def open(self, waited: int | None = None) -> None:
        if waited is not None:
            self.look_waits_ns.append(waited)
        used = self.party.spawned.cpu_ns()
        self._opened = None if used is None else (time.monotonic_ns(), used)

    def close(self) -> None:
        self.awake = False
        if self._opened is None:
            return
        used = self.party.spawned.cpu_ns()
        if used is not None:
            lasted, worked = time.monotonic_ns() - self._opened[0], used - self._opened[1]
            self.open_ns += lasted
            self.used_ns += worked
            self.awake = worked > BUSY * lasted
        self._opened = None

    def stop(self) -> None:
        """Closes the window and freezes the party."""
        self.close()
        self.still = True
        self.party.spawned.freeze()

    def go(self) -> None:
        if self.still:
            self.still = False
            self.party.spawned.thaw()

    def finding(self) -> str:
        """Returns a sentence with the figures; empty if the party was idle."""
        if self.used_ns > max(BUSY * self.open_ns, LEAST_NS):
            share = self.used_ns / max(self.open_ns, 1)
            return f"while the baselines were timed the program used {share:.0%} of a processor: it must be idle between its calls"
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
        """Returns how long a tiny kernel waited, in ns, if that is too long; otherwise, returns 0."""
        if self.usual_wait_ns is None:
            return 0.0
        enough = ((self.waits_ns, GPU_WINDOWS), (self.look_waits_ns, GPU_LOOKS))
        wait = max((statistics.median(waits) for waits, count in enough if len(waits) >= count), default=0.0)
        return wait if wait > max(GPU_TIMES * self.usual_wait_ns, GPU_LEAST_NS) else 0.0

    def crowded(self) -> str:
        """Returns a sentence if another process is using the device; otherwise, returns an empty string."""
        wait = self.long_wait()
        if not wait or not self.works_on:
            return ""
        return (
            f"while the baselines were timed a tiny kernel of the judge's waited {wait / 1e6:.2f} ms for the GPU, which works on with the "
            "program's processes gone: another process keeps it busy (see nvidia-smi)"
        )


def pause(watches: Sequence[Watch], looks: bool) -> None:
    """Pauses between the turns of the watched parties and those of the others. With `looks`, the watched parties have just had their turns: the judge
    checks that they are idle and then freezes them. Otherwise, it waits equally long, so that both kinds of turns follow a pause. No party is
    notified."""
    device = watches[0].party.device
    for watch in watches if not looks else ():
        watch.go()
    device.settle()
    time.sleep(SETTLE_SECONDS)
    waited = device.wait_ns()
    looked = watches if looks else ()
    for watch in looked:
        watch.open(waited)
    time.sleep(LOOK_SECONDS)
    for watch in looked:
        watch.close()
        if not watch.awake:
            watch.stop()
    awake = [watch for watch in looked if watch.awake]
    if awake:
        time.sleep(SETTLE_SECONDS)
        for watch in awake:
            watch.open()
        time.sleep(LONG_LOOK_SECONDS)
        for watch in awake:
            watch.stop()


@contextlib.contextmanager
def ending(watches: Sequence[Watch]) -> Iterator[None]:
    """Thaws every party when the context ends, whatever happens."""
    try:
        yield
    finally:
        for watch in watches:
            watch.go()
