"""What judge and parties need of a device. Two halves that never meet in one process: `Device` (judge, trusted) and `PartyDevice` (sandboxed).

The judge allocates *arenas*: blocks of device memory that one party maps. Inputs and weights are written there by the judge and by the
reference; outputs are read from there. A party answers a timed call through `go` and `done`, which live in a native shim that is loaded,
with its function pointers saved, before any program.

The timed exchange, on the party's socket between two ordinary frames, is raw bytes. The judge writes the call's inputs only when the party has said
that it is ready, so that nothing works on them ahead. Then it writes ``F``, and the party brings caches and processors into the same state as before
every call and answers ``f``. The judge writes ``G``; the party's `go` returns on it with the clock started; forward runs; `done` syncs the device,
stops the clock and writes ``i64`` little-endian nanoseconds. So the judge's own wall time of the same exchange differs from the shim's by one round
trip. On the CPU the judge then reads its clock and writes ``S``, for which `done` waits.

Scored calls are timed in a *series* wherever memory allows: one request, after whose ``ready`` judge and party meet in a shared page
(`verifier/shim/series.c`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # the first parties of a judge are started before it has pydantic
    from verifier.report import Environment
    from verifier.shim.clock import Clock, Leader

GO = b"G"
REFRESH, REFRESHED, SEEN = b"F", b"f", b"S"
ALIGNMENT = 256  # bytes; of every tensor in an arena


class DeviceError(RuntimeError):
    """The host or the device cannot do what was asked; the message says what to install, free or restart."""


class NoRoom(DeviceError):
    """There is not enough memory for tensors: the message has the figures."""


@dataclass(frozen=True)
class Bind:
    """A path that a party's sandbox shows, read-only or as a device node."""

    source: str
    target: str
    device: bool = False
    optional: bool = False


class Arena(ABC):
    """Judge-owned device memory, mapped by one party. `bytes` is the judge's own view: a flat uint8 tensor on the device."""

    nbytes: int
    handle: dict[str, Any]  # JSON by which the party maps it; its descriptors are in `fds`
    fds: tuple[int, ...] = ()

    @property
    @abstractmethod
    def bytes(self) -> Any: ...

    @abstractmethod
    def leave(self) -> None:
        """Ties the memory to the last tensor over it, and `handle` to this object, so that the judge needs no copy of gigabytes. The party has ended
        its mapping, or will do so before."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True)
class Ceiling:
    """The device's limits, for the physical floor. Null where not known, with the reason."""

    bytes_per_second: float | None
    flops_per_second: float | None
    source: str  # "measured on this host", "data sheet"


class Device(ABC):
    """The judge's half."""

    name: str  # "cpu", "cuda:0"
    kind: Literal["cpu", "cuda"]
    torch_device: str  # for the judge's own comparisons
    lost = False  # `check` found that this process can no longer use the device; another one may

    @property
    def place(self) -> str:
        """A name that is the same for all judges which measure on this device."""
        return self.name

    def rests(self) -> bool:
        """Whether the device has no work but this judge's."""
        return True

    def begin(self) -> None:  # noqa: B027  most devices have nothing that is worth a thread
        """Starts the work of `open` that needs no torch, in threads of its own, so that it overlaps with the import."""

    def take_processors(self) -> None:  # noqa: B027  a device that has the whole host has nothing to share
        """Binds this thread, and whatever it starts from now on, to this device's part of the host, away from the processors on which sides are
        timed: judges of other devices measure too, and judges of this one wait beside the one that measures."""

    @property
    def timed_on(self) -> list[int]:
        """Returns the processors that the sides of a block share, one block after the other; none where parties are not bound."""
        return []

    @property
    def wide_on(self) -> list[int]:
        """Returns the device's other processors, on which parties start."""
        return []

    def early(self, role: str) -> bool:
        """Whether a party that gets `role` as soon as it is ready can initialise its device while it imports torch."""
        return False

    def open(self) -> None:  # noqa: B027  a device that needs no torch is open when it is there
        """Does the part of opening that needs torch and takes seconds: contexts, probes. Parties can be started before. Raises `DeviceError`."""

    @abstractmethod
    def environment(self) -> Environment: ...

    @abstractmethod
    def allocate(self, nbytes: int) -> Arena:
        """Allocates an arena. Raises `NoRoom` where there is not enough memory."""

    @abstractmethod
    def sync(self) -> None: ...

    def adopt_thread(self) -> None:  # noqa: B027  a device without contexts needs none
        """Prepares a further thread of the judge to use the device."""

    rehearsal: threading.Thread | None = None  # thread in which the judge's kernels are being loaded

    polling_seconds = 0.0  # how long the judge polls for a party's answer before it sleeps
    says_seen = False  # whether a party waits after a call until the judge has read its clock
    begins_ahead = False  # whether processes that are timed later may start during the trials: where that takes nothing from the trials
    process_bytes = 0  # device memory that a process takes before it has a tensor

    def trim(self, need: int = 0) -> None:  # noqa: B027  only a device whose allocator keeps what others need has something to give back
        """Gives back gigabytes of cached, unused memory where less than the `need` bytes of the next step are free."""

    def leader(self) -> Leader | None:
        """Returns the judge's half of a series of calls; null where there is no native clock: calls are then timed one by one."""
        return None

    @abstractmethod
    def flush_caches(self) -> None:
        """Flushes the L2 and resets persisting lines, so that a timed call finds its inputs in memory."""

    def settle(self) -> None:  # noqa: B027 - most devices need nothing
        """Waits, just before a timed call, until no other party's work runs on the device."""

    def wait_ns(self) -> int | None:
        """Measures how long a tiny kernel of the judge takes now, queueing included; it is long where another process keeps the device busy. Null
        where there is no such queue."""
        return None

    def learn_wait(self) -> None:  # noqa: B027  there is no queue to wait in
        """Learns what a wait usually is. Called when no program exists and another process's context was active just now."""

    def usual_wait_ns(self) -> int | None:
        """Returns the median of the learnt waits, as far as the device itself makes a kernel wait; null where nothing was learnt."""
        return None

    def free_bytes(self) -> int | None:
        """Returns the free device memory, assuming that the judge keeps nothing unused; null where the host's memory is meant."""
        return None

    def short(self, need: int) -> bool:
        """Whether less than `need` bytes of device memory are free at present."""
        return False

    def total_bytes(self) -> int | None:
        """Returns the total device memory; null where the host's memory is meant."""
        return None

    @abstractmethod
    def ceiling(self, precision: str) -> Ceiling: ...

    def reached(self) -> dict[str, float]:
        """Returns the rates that streams and matrix products reach on this device, in GB/s and GFLOP/s by name, where they are measured apart from
        `ceiling`."""
        return {}

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Returns JSON for `party_device`: kind, shim path inside the sandbox, threads, ..."""

    def binds(self, role: str) -> list[Bind]:
        """Returns the paths needed beyond the interpreter and the system's libraries. `role` is "builder" (never the device itself) or "device"."""
        return []

    def variables(self, role: str) -> dict[str, str]:
        """Returns the environment of a party; nothing else of the host's environment reaches it."""
        return {}

    def check(self) -> str:
        """Checks the device before each job. Returns a sentence why it cannot be used now (canary, free memory), or an empty string."""
        return ""

    def missing_compiler(self) -> str:
        """Returns a sentence that says what to install; empty where nothing is missing."""
        return ""

    def sample_clocks(self) -> None:  # noqa: B027  a device without clocks to sample does nothing
        """Samples clocks around each timed block and remembers throttle reasons where the device has them."""

    def throttled(self) -> bool | None:
        """Whether the device throttled since the last call of this function; null where it does not tell."""
        return None

    def peak_bytes(self) -> int | None:
        return None

    def rest(self) -> None:  # noqa: B027
        """Repeats measurements that are worth it. Called between jobs, when nobody waits."""

    def close(self) -> None:  # noqa: B027
        """Releases what the device holds in this process."""


class PartyDevice(ABC):
    """The party's half. Created from `Device.config()`, before any stranger's source is loaded."""

    torch_device: str

    @abstractmethod
    def attach(self, handle: dict[str, Any], fds: list[int]) -> Any:
        """Maps an arena: a flat uint8 tensor on the device over the judge's memory. Owns (closes) the descriptors."""

    def detach(self, arena: Any) -> None:  # noqa: B027  shared host memory goes with its last tensor
        """Ends a mapping that `attach` made; nothing may point into it any more."""

    def trim(self, need: int = 0) -> None:  # noqa: B027
        """Gives back memory that is kept, but not used, as the judge's half does. Never between a party's timed calls."""

    def give_back(self) -> None:  # noqa: B027  host memory is the C library's, and stays
        """Gives back all cached, unused memory."""

    @abstractmethod
    def configure(self, precision: str) -> None:
        """Sets the precision policy and the thread count, the same for program and baselines."""

    @abstractmethod
    def sync(self) -> None:
        """Waits for all work on the device."""

    def prepare(self) -> None:  # noqa: B027  a device without clocks or contexts needs none
        """Brings the device into the same state just before each timed exchange, outside the interval."""

    @abstractmethod
    def go(self, fd: int) -> None:
        """Blocks until inputs are there and caches refreshed (``F``, ``f``), then until the judge's ``G``, and starts the clock."""

    @abstractmethod
    def done(self, fd: int) -> int:
        """Device-wide sync, stops the clock, writes the nanoseconds to `fd` as i64; returns them."""

    def failure(self, error: Exception) -> Exception:
        """Explains a failure of the clock to the author of a program."""
        return error

    @property
    def series(self) -> Clock | None:
        """Returns the clock of a series of calls; null where this device has none."""
        return None

    def peak_bytes(self, reset: bool = False) -> int | None:
        """Returns the peak device memory of this process since the last reset, where the device counts it."""
        return None

    def held_bytes(self) -> int | None:
        """Returns the device memory that this process's tensors take now; null where the device does not count it."""
        return None
