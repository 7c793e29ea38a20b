"""The device interface for the judge and the parties. Its two halves are never in the same process: `Device` is for the judge (trusted) and
`PartyDevice` for parties (sandboxed).

The judge allocates *arenas*, which are blocks of device memory that one party maps. The judge and the reference write inputs and weights to arenas,
and outputs are read from them. A party answers a timed call through `go` and `done`, which are implemented in a native shim. The shim is loaded, and
its function pointers are saved, before any program is loaded.

The timed exchange consists of raw bytes on the party's socket between two ordinary frames. The judge writes the call's inputs only after the party
has reported that it is ready, so nothing can process them in advance. Then the judge writes ``F``. The party brings caches and processors into the
same state as before every call and answers ``f``. The judge then writes ``G``, and the party's `go` starts the clock and returns. After the forward
pass, `done` syncs the device, stops the clock, and writes the nanoseconds as a little-endian ``i64``. Therefore, the judge's own wall time for the
same exchange differs from the shim's by one round trip. On the CPU, the judge then reads its clock and writes ``S``; `done` waits for this byte.

If memory allows, scored calls are timed in a *series*: a single request, after whose ``ready`` the judge and the party communicate through a shared
page (`verifier/shim/series.c`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # a judge starts its first parties before it has imported pydantic
    from verifier.report import Environment
    from verifier.shim.clock import Clock, Leader

GO = b"G"
REFRESH, REFRESHED, SEEN = b"F", b"f", b"S"
ALIGNMENT = 256  # bytes; applies to every tensor in an arena


class DeviceError(RuntimeError):
    """Raised when the host or the device cannot fulfil a request. The message explains what to install, free or restart."""


class NoRoom(DeviceError):
    """Raised when there is not enough memory for tensors. The message contains the figures."""


@dataclass(frozen=True)
class Bind:
    """A path that is exposed in a party's sandbox, read-only or as a device node."""

    source: str
    target: str
    device: bool = False
    optional: bool = False


class Arena(ABC):
    """Device memory that the judge owns and one party maps. `bytes` is the judge's own view: a flat uint8 tensor on the device."""

    nbytes: int
    handle: dict[str, Any]  # JSON that the party needs to map the arena; its descriptors are in `fds`
    fds: tuple[int, ...] = ()

    @property
    @abstractmethod
    def bytes(self) -> Any: ...

    @abstractmethod
    def leave(self) -> None:
        """Ties the lifetime of the memory to the last tensor that uses it, and that of `handle` to this object, which saves the judge from copying
        gigabytes. The party has already removed its mapping, or will do so before the memory is freed."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True)
class Ceiling:
    """The device's limits, used for the physical floor. If a limit is unknown, it is null, and the reason is given."""

    bytes_per_second: float | None
    flops_per_second: float | None
    source: str  # "measured on this host", "data sheet"


class Device(ABC):
    """The judge's half."""

    name: str  # "cpu", "cuda:0"
    kind: Literal["cpu", "cuda"]
    torch_device: str  # used for the judge's own comparisons
    lost = False  # `check` has found that this process can no longer use the device, although another process may be able to

    @property
    def place(self) -> str:
        """Returns a name that is the same for all judges that measure on this device."""
        return self.name

    def rests(self) -> bool:
        """Returns whether the device is running only this judge's work."""
        return True

    def begin(self) -> None:  # noqa: B027  most devices have nothing that is worth a thread
        """Starts the parts of `open` that do not need torch in separate threads, which overlap with torch's import."""

    def take_processors(self) -> None:  # noqa: B027  a device that has the whole host has nothing to share
        """Binds this thread, and any thread or process that it starts later, to this device's part of the host, away from the processors on which
        sides are timed. This matters because judges of other devices also measure, and other judges of this device wait while one of them
        measures."""

    @property
    def timed_on(self) -> list[int]:
        """Returns the processors on which sides are timed. Returns an empty list if parties are not bound."""
        return []

    @property
    def wide_on(self) -> list[int]:
        """Returns the processors on which parties start and do everything that is not timed."""
        return []

    @property
    def stands_on(self) -> list[int]:
        """Returns the timing processors on which a side's main thread stands; each block uses the next one. Returns an empty list if it moves
        freely."""
        return self.timed_on

    def early(self, role: str) -> bool:
        """Returns whether a party that receives `role` as soon as it is ready can initialise its device while it is importing torch."""
        return False

    def open(self) -> None:  # noqa: B027  a device that needs no torch is open when it is there
        """Performs the part of opening that needs torch and takes seconds: creating contexts and probing. Parties can be started before this step.
        Raises `DeviceError`."""

    @abstractmethod
    def environment(self) -> Environment: ...

    @abstractmethod
    def allocate(self, nbytes: int) -> Arena:
        """Allocates an arena. Raises `NoRoom` if there is not enough memory."""

    @abstractmethod
    def sync(self) -> None: ...

    def adopt_thread(self) -> None:  # noqa: B027  a device without contexts needs none
        """Prepares another thread of the judge to use the device."""

    rehearsal: threading.Thread | None = None  # thread in which the judge's kernels are being loaded

    polling_seconds = 0.0  # time for which the judge polls for a party's answer before it sleeps
    says_seen = False  # whether a party waits after each call until the judge has read its clock
    begins_ahead = False  # whether processes that are timed later can start during the trials without taking resources from them
    process_bytes = 0  # device memory that a process occupies before it has any tensor

    def trim(self, need: int = 0) -> None:  # noqa: B027  only a device whose allocator keeps what others need has something to give back
        """Releases gigabytes of cached but unused memory if fewer than the `need` bytes of the next step are free."""

    def leader(self) -> Leader | None:
        """Returns the judge's half of a series of calls. Returns null if there is no native clock, in which case calls are timed individually."""
        return None

    @abstractmethod
    def flush_caches(self) -> None:
        """Flushes the L2 cache and resets persisting lines, which forces a timed call to read its inputs from memory."""

    def settle(self) -> None:  # noqa: B027 - most devices need nothing
        """Waits, just before a timed call, until no other party has work running on the device."""

    def wait_ns(self) -> int | None:
        """Measures how long a tiny kernel launched by the judge currently takes, including queueing. The time is long if another process keeps the
        device busy. Returns null if there is no such queue."""
        return None

    def learn_wait(self) -> None:  # noqa: B027  there is no queue to wait in
        """Measures how long a wait usually takes. Called when no program exists and another process's context has just been active."""

    def usual_wait_ns(self) -> int | None:
        """Returns the median of the measured waits, counting only waits that the device itself causes. Returns null if none was measured."""
        return None

    def free_bytes(self) -> int | None:
        """Returns the amount of free device memory, assuming that the judge keeps no unused memory. Returns null if the device uses host memory."""
        return None

    def short(self, need: int) -> bool:
        """Returns whether fewer than `need` bytes of device memory are currently free."""
        return False

    def total_bytes(self) -> int | None:
        """Returns the total amount of device memory. Returns null if the device uses host memory."""
        return None

    @abstractmethod
    def ceiling(self, precision: str) -> Ceiling: ...

    def reached(self) -> dict[str, float]:
        """Returns the rates, by name and in GB/s and GFLOP/s, that streams and matrix products reach on this device if these are measured separately
        from `ceiling`."""
        return {}

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Returns the JSON for `party_device`: kind, shim path in the sandbox, threads, ..."""

    def binds(self, role: str) -> list[Bind]:
        """Returns the paths that are needed in addition to the interpreter and the system's libraries. `role` is "builder" (which never gets the
        device itself) or "device"."""
        return []

    def variables(self, role: str) -> dict[str, str]:
        """Returns the environment of a party. Nothing else from the host's environment is passed to the party."""
        return {}

    def check(self) -> str:
        """Checks the device before each job. Returns a sentence that explains why the device cannot be used now (canary, free memory), or an empty
        string."""
        return ""

    def missing_compiler(self) -> str:
        """Returns a sentence that says what to install, or an empty string if nothing is missing."""
        return ""

    def sample_clocks(self) -> None:  # noqa: B027  a device without clocks to sample does nothing
        """Samples clocks around each timed block, and records throttle reasons if the device reports them."""

    def throttled(self) -> bool | None:
        """Returns whether the device has throttled since the last call to this method. Returns null if the device does not report throttling."""
        return None

    def peak_bytes(self) -> int | None:
        return None

    def rest(self) -> None:  # noqa: B027
        """Repeats the measurements that are worth repeating. It is called between jobs, when nobody is waiting."""

    def close(self) -> None:  # noqa: B027
        """Releases everything that the device holds in this process."""


class PartyDevice(ABC):
    """The party's half. It is created from `Device.config()` before any untrusted source is loaded."""

    torch_device: str

    @abstractmethod
    def attach(self, handle: dict[str, Any], fds: list[int]) -> Any:
        """Maps an arena and returns it as a flat uint8 tensor on the device, backed by the judge's memory. Takes ownership of the descriptors and
        closes them."""

    def detach(self, arena: Any) -> None:  # noqa: B027  shared host memory goes with its last tensor
        """Removes a mapping created by `attach`. After that, nothing may point into it."""

    def trim(self, need: int = 0) -> None:  # noqa: B027
        """Releases memory that is cached but unused, like `trim` in the judge's half. It is never called between a party's timed calls."""

    def give_back(self) -> None:  # noqa: B027  host memory is the C library's, and stays
        """Releases all cached, unused memory."""

    @abstractmethod
    def configure(self, precision: str) -> None:
        """Sets the precision policy and the thread count, which are the same for the program and the baselines."""

    @abstractmethod
    def sync(self) -> None:
        """Waits until all work on the device has finished."""

    def prepare(self) -> None:  # noqa: B027  a device without clocks or contexts needs none
        """Brings the device into the same state just before each timed exchange, outside the timed interval."""

    @abstractmethod
    def go(self, fd: int) -> None:
        """Blocks until inputs are available and caches have been refreshed (``F``, ``f``), and then until the judge's ``G``. Then starts the
        clock."""

    @abstractmethod
    def done(self, fd: int) -> int:
        """Syncs the whole device, stops the clock, writes the nanoseconds to `fd` as an i64, and returns them."""

    def failure(self, error: Exception) -> Exception:
        """Explains a clock failure to a program's author."""
        return error

    @property
    def series(self) -> Clock | None:
        """Returns the clock for a series of calls, or null if this device has none."""
        return None

    def peak_bytes(self, reset: bool = False) -> int | None:
        """Returns this process's peak device memory since the last reset, if the device tracks it."""
        return None

    def held_bytes(self) -> int | None:
        """Returns how much device memory this process's tensors currently occupy, or null if the device does not track it."""
        return None

    def in_use(self, extents: Sequence[tuple[int, int]]) -> list[bool]:
        """Returns, for each range of addresses (first byte, byte after the last) that belonged to a tensor which no longer exists, whether its memory
        is still in use. False if the device cannot tell."""
        return [False] * len(extents)
