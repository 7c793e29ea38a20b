"""Memory limits, process limits, CPU accounting and a reliable kill for one party. Uses cgroup v2 if its controllers are available, and otherwise v1.
If neither is available, only rlimits apply."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

ROOT = Path("/sys/fs/cgroup")
Kind = Literal["v2", "v1"]
_count = itertools.count()


@cache
def version() -> Literal["v2", "v1", ""]:
    """Returns the hierarchy in which this process can create groups with limits."""
    candidates: tuple[Kind, ...] = ("v2", "v1")
    for candidate in candidates:
        group = Cgroup.create(candidate, 1 << 30, 64)
        if group is not None:
            group.remove()
            return candidate
    return ""


def layer() -> str:
    """Returns, for a report, the name of the mechanism that limits a party on this host."""
    kind = version()
    if not kind:
        return ""
    counted = kind == "v2" or bool(_accounting())
    return f"cgroup {kind} (memory, processes{', processor time' if counted else ''})"


def lack() -> str:
    """Explains how to enable limits if this process cannot create a group."""
    if os.getuid() == 0:
        return "cgroup memory and process limits: mount /sys/fs/cgroup writable (a container: --cgroupns=private with a writable cgroup mount)"
    return "cgroup memory and process limits: run as root, or in a delegated group (systemd-run --user --scope -p Delegate=yes ...)"


def own_group() -> Path | None:
    """Returns this process's group in the v2 hierarchy, or null if there is no such group or if it is outside the mount."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/") and ".." not in line:
                return ROOT / line[4:]
    return None


@cache
def _base() -> Path | None:
    """Returns the v2 group that contains the parties' groups. Except for the host's root group, a group that contains processes cannot delegate
    controllers. Therefore, a process that is alone in a delegated group moves into a leaf group."""
    if not (ROOT / "cgroup.controllers").exists():
        return None
    own = own_group()
    for folder in (ROOT, own) if own is not None and own != ROOT else (ROOT,):
        if _passes_on(folder):
            return folder
        with contextlib.suppress(OSError, ValueError):
            inside = [int(line) for line in (folder / "cgroup.procs").read_text().split()]
            if inside == [os.getpid()]:
                leaf = folder / "stitchwork-judge"
                leaf.mkdir(exist_ok=True)
                (leaf / "cgroup.procs").write_text("0")
                if _passes_on(folder):
                    return folder
    return None


def _passes_on(folder: Path) -> bool:
    _write(folder / "cgroup.subtree_control", "+memory +pids")
    _write(folder / "cgroup.subtree_control", "+cpu")
    with contextlib.suppress(OSError):
        return {"memory", "pids"} <= set((folder / "cgroup.subtree_control").read_text().split())
    return False


@cache
def _accounting() -> Path | None:
    """Returns the v1 hierarchy that accounts for processor time."""
    return next((folder for folder in (ROOT / "cpuacct", ROOT / "cpu,cpuacct") if (folder / "cpuacct.usage").exists()), None)


def _write(path: Path, value: str) -> bool:
    try:
        path.write_text(value)
        return True
    except OSError:
        return False


@dataclass
class Cgroup:
    folders: list[Path]
    kind: Kind
    procs: list[int] = field(default_factory=list)  # open cgroup.procs files; a child process writes "0" to join the group
    usage: int = -1  # open file that reports processor time
    _closing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def create(cls, kind: Kind, memory: int, pids: int) -> Cgroup | None:
        """Creates a new group, or returns null if the host does not allow it."""
        name = f"stitchwork-{os.getpid()}-{next(_count)}"
        if kind == "v2":
            base = _base()
            if base is None:
                return None
            folders = [base / name]
            limits = [(folders[0] / "memory.max", memory), (folders[0] / "pids.max", pids)]
            soft = [(folders[0] / "memory.swap.max", 0), (folders[0] / "memory.oom.group", 1)]
            counter = folders[0] / "cpu.stat"
        else:
            folders = [ROOT / "memory" / name, ROOT / "pids" / name]
            limits = [(folders[0] / "memory.limit_in_bytes", memory), (folders[1] / "pids.max", pids)]
            soft = [(folders[0] / "memory.memsw.limit_in_bytes", memory)]
            accounting = _accounting()
            folders += [accounting / name] if accounting is not None else []
            counter = folders[-1] / "cpuacct.usage"
        group = cls(folders, kind)
        try:
            for folder in folders:
                if not folder.parent.is_dir():
                    raise OSError("not mounted")
                folder.mkdir()
            if not all(_write(path, str(value)) for path, value in limits):
                raise OSError("no controller")
            for path, value in soft:
                _write(path, str(value))
            group.procs = [os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for folder in folders]
        except OSError:
            group.remove()
            return None
        with contextlib.suppress(OSError):
            group.usage = os.open(counter, os.O_RDONLY | os.O_CLOEXEC)
        return group

    def enter(self) -> None:
        """Enters the group. Called in the child process between fork and exec."""
        for fd in self.procs:
            os.write(fd, b"0")

    def cpu_ns(self) -> int | None:
        """Returns the processor time, in nanoseconds, of everything that has ever run in the group. Reading it takes one microsecond. The value
        advances once per scheduler tick (1 to 4 ms) while a thread runs, and becomes exact when the thread stops."""
        if self.usage < 0:
            return None
        try:
            text = os.pread(self.usage, 64, 0)
            return int(text) if self.kind == "v1" else int(text.split(None, 2)[1]) * 1000  # "usage_usec 123\n..."
        except (OSError, ValueError, IndexError):
            return None

    def pids(self) -> list[int]:
        """Returns the processes that are currently in the group."""
        found: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):
                found |= {int(line) for line in (folder / "cgroup.procs").read_text().split()}
        return sorted(found)

    def out_of_memory(self) -> bool:
        """Returns whether the kernel killed any process in the group because of its memory limit."""
        path = self.folders[0] / ("memory.events" if self.kind == "v2" else "memory.oom_control")
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split() for line in path.read_text().splitlines())
            return int(counts.get("oom_kill", 0)) > 0
        return False

    def peak_bytes(self) -> int | None:
        path = self.folders[0] / ("memory.peak" if self.kind == "v2" else "memory.max_usage_in_bytes")
        with contextlib.suppress(OSError, ValueError):
            return int(path.read_text())
        return None

    def freeze(self, frozen: bool) -> bool:
        """Freezes or thaws everything in the group. Returns whether this kind of group can be frozen."""
        return self.kind == "v2" and _write(self.folders[0] / "cgroup.freeze", str(int(frozen)))

    def kill(self) -> None:
        """Kills everything in the group, including processes that have left their session and those that were forked while the list was being
        read."""
        if self.kind == "v2" and _write(self.folders[0] / "cgroup.kill", "1"):  # Linux 5.14
            return
        for _ in range(20):
            inside = self.pids()
            for pid in inside:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not inside:
                return
            time.sleep(0.002)

    def remove(self) -> bool:
        """Removes the group and returns whether it no longer exists. A killed process leaves its group after a short delay."""
        with self._closing:  # called from one thread after a failure, and from another on normal completion
            open_files, self.procs, self.usage = [*self.procs, self.usage], [], -1
        for fd in open_files:
            if fd >= 0:
                os.close(fd)
        gone = [_removed(folder) for folder in self.folders]
        return all(gone)


def _removed(folder: Path) -> bool:
    for _ in range(50):
        try:
            folder.rmdir()
            return True
        except FileNotFoundError:
            return True
        except OSError:
            time.sleep(0.01)
    return False


def sweep() -> None:
    """Removes groups that a killed judge left behind."""
    parents = {ROOT, ROOT / "memory", ROOT / "pids", _base() or ROOT, _accounting() or ROOT}
    for parent in parents:
        for folder in parent.glob("stitchwork-*-*"):
            owner = folder.name.split("-")[1]
            if owner.isdigit() and not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()
