"""A confined process from the host's point of view: its output, freezing, processor time, and the termination of all its processes."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from verifier.channel import Channel
from verifier.confinement import cgroup
from verifier.limits import Limits

GUARD_SECONDS = 0.2
ROUNDS = 50  # number of passes over a party's processes when it is stopped without a freezer
SURVIVAL = 30.0  # seconds after SIGKILL; if a process still exists then, a driver is holding it, and the device cannot be trusted


@dataclass
class Spawned:
    """A confined process: its channel, its truncated output, and the means to kill everything in it."""

    process: subprocess.Popen[bytes]
    channel: Channel
    limits: Limits
    group: cgroup.Cgroup | None
    folder: str  # private folder of a party that has no namespaces
    wrapped: bool
    printed: bytearray = field(default_factory=bytearray)
    total: int = 0
    flooded: bool = False
    drain: threading.Thread | None = None
    over: Literal["", "memory", "processes"] = ""  # the limit that the party exceeded, if no cgroup enforces limits
    ended: bool = False
    frozen: int = 0  # number of `freeze` calls without a `thaw`
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start_drain(self) -> None:
        self.drain = threading.Thread(target=self._drain, daemon=True)
        self.drain.start()
        if self.group is None:
            threading.Thread(target=self._guard, daemon=True).start()

    def _guard(self) -> None:
        """Polls the limits if there is no cgroup, because rlimits bound neither root's process count nor CUDA's memory."""
        page = os.sysconf("SC_PAGE_SIZE")
        while not self.ended and self.process.poll() is None:
            family = family_of(self.process.pid)
            resident = 0
            for pid in family:
                with contextlib.suppress(OSError, ValueError, IndexError):
                    _, all_pages, file_pages = Path(f"/proc/{pid}/statm").read_text().split()[:3]
                    resident += (int(all_pages) - int(file_pages)) * page  # CUDA's libraries alone occupy gigabytes
            if resident > self.limits.memory or len(family) > self.limits.processes:
                self.over = "memory" if resident > self.limits.memory else "processes"
                self.kill()
                return
            time.sleep(GUARD_SECONDS)

    def _drain(self) -> None:
        """Reads everything that the party prints, so the party never blocks, and keeps the end of the output."""
        assert self.process.stdout is not None
        keep = self.limits.output
        fd = self.process.stdout.fileno()
        while True:
            try:
                part = os.read(fd, 65536)
            except OSError:
                return
            if not part:
                return
            self.total += len(part)
            self.printed += part
            if len(self.printed) > 2 * keep:
                del self.printed[: len(self.printed) - keep]
            if self.total > self.limits.output_flood and not self.flooded:
                self.flooded = True
                self.kill()

    def text(self) -> str:
        """Returns the end of the output, at most `limits.output` bytes."""
        if self.drain is not None and self.ended:
            self.drain.join(timeout=1)
        return bytes(self.printed[-self.limits.output :]).decode(errors="replace")

    def freeze(self) -> None:
        """Freezes everything in the party, including processes that it starts in the meantime, until `thaw` has been called as often as `freeze`, or
        the party ends. Thread-safe."""
        with self.lock:
            self.frozen += 1
            if self.frozen == 1:
                self._still(True)

    def thaw(self) -> None:
        """Undoes one `freeze`. Does nothing to a party that is not frozen. Thread-safe."""
        with self.lock:
            self.frozen = max(self.frozen - 1, 0)
            if self.frozen == 0:
                self._still(False)

    def members(self) -> list[int]:
        """Returns all processes of the party."""
        return self.group.pids() if self.group is not None else family_of(self.process.pid)

    def main_pid(self) -> int | None:
        """Returns the pid of the interpreter, which runs below bubblewrap's two processes. Returns null if the host does not reveal the pid."""
        family = family_of(self.process.pid)
        at = 2 if self.wrapped else 0
        return family[at] if len(family) > at else None

    def _still(self, frozen: bool) -> None:
        if self.ended or (self.group is not None and self.group.freeze(frozen)):
            return
        told: set[int] = set()
        for _ in range(ROUNDS):  # a process that is started in the meantime appears in the next list
            inside = self.members()
            if told.issuperset(inside):
                return
            for pid in set(inside) - told:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)
            told.update(inside)

    def kill(self) -> None:
        """Sends SIGKILL to all processes of the party. It can be called from any thread, and more than once."""
        family = family_of(self.process.pid) if self.group is None and not self.wrapped else []
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.group is not None:
            self.group.kill()
        with contextlib.suppress(OSError):
            self.process.kill()
        for pid in family:  # processes that have left the session; a namespace is killed as a whole
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> int | None:
        """Kills any remaining processes, frees all resources, and returns the exit status (negative for a signal). Records processes that do not
        die in `survivors`."""
        if self.ended:
            return self.process.returncode
        status = self.process.poll()
        family = self.members()
        self.kill()
        deadline = time.monotonic() + SURVIVAL
        with contextlib.suppress(subprocess.TimeoutExpired):
            wait(self.process, SURVIVAL)
        left = self._left(family)
        while left and time.monotonic() < deadline:
            time.sleep(0.01)
            self.kill()
            left = self._left(family)
        _unkillable.update(left)
        self.ended = True
        if self.drain is not None:
            self.drain.join(timeout=2)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.channel.close()
        if self.group is not None:
            self.group.remove()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        return status if status is not None else self.process.returncode

    def _left(self, family: list[int]) -> list[int]:
        return self.group.pids() if self.group is not None else [pid for pid in family if _alive(pid)]

    def cpu_ns(self) -> int | None:
        """Returns the processor time, in nanoseconds, that everything in the party has used so far. Returns null if the host does not report it."""
        if self.group is not None and (used := self.group.cpu_ns()) is not None:
            return used
        total = 0
        for pid in family_of(self.process.pid):
            with contextlib.suppress(OSError):
                total += time.clock_gettime_ns((~pid << 3) | 2)  # the CPU-time clock of another process, encoded as in clock_getcpuclockid(3)
        return total

    def exit_status(self, seconds: float = 2.0) -> int | None:
        """Returns the status with which the party exited on its own (128 + n, or negative, for signal n). Otherwise, returns null."""
        try:
            return wait(self.process, seconds)
        except subprocess.TimeoutExpired:
            return None


class MainProcess:
    """The interpreter of a party as a unit that can be frozen separately; the processes that it has started keep running."""

    def __init__(self, spawned: Spawned):
        self.spawned = spawned
        self._stopped: int | None = None

    def freeze(self) -> None:
        if self.spawned.ended:
            return
        self._stopped = self.spawned.main_pid()
        if self._stopped is None:
            self.spawned.freeze()
        else:
            with contextlib.suppress(OSError):
                os.kill(self._stopped, signal.SIGSTOP)

    def thaw(self) -> None:
        if self.spawned.ended:
            return
        if self._stopped is None:
            self.spawned.thaw()
        else:
            with contextlib.suppress(OSError):
                os.kill(self._stopped, signal.SIGCONT)


def wait(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Waits as `Popen.wait` does, but without polling, which may sleep for up to 50 ms after a process has ended. Raises
    `subprocess.TimeoutExpired`."""
    if process.poll() is None:
        try:
            fd = os.pidfd_open(process.pid)
        except OSError:  # Linux before 5.3, or a sandbox that forbids the call
            return process.wait(timeout=seconds)
        try:
            waiting = select.poll()
            waiting.register(fd, select.POLLIN)
            waiting.poll(seconds * 1000)
        finally:
            os.close(fd)
    return process.wait(timeout=0)


_unkillable: set[int] = set()


def survivors() -> list[int]:
    """Returns the processes that still exist although their party has ended."""
    _unkillable.intersection_update({pid for pid in _unkillable if _alive(pid)})
    return sorted(_unkillable)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def family_of(pid: int) -> list[int]:
    """Returns a process and its descendants. Used on hosts without cgroups."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                found += [int(child) for child in Path(f"/proc/{parent}/task/{thread}/children").read_text().split()]
    return found
