"""Memory and process limits for one party: cgroup v2 where its controllers are there, else v1, else none (rlimits remain)."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

ROOT = Path("/sys/fs/cgroup")
_count = itertools.count()


@cache
def version() -> Literal["v2", "v1", ""]:
    """Which hierarchy this process may create groups with limits in."""
    for candidate in ("v2", "v1"):
        group = Cgroup.create(candidate, 1 << 30, 64)  # type: ignore[arg-type]
        if group is not None:
            group.remove()
            return candidate  # type: ignore[return-value]
    return ""


def _write(path: Path, value: str) -> bool:
    try:
        path.write_text(value)
        return True
    except OSError:
        return False


@dataclass
class Cgroup:
    folders: list[Path]
    kind: str
    procs: list[int] = field(default_factory=list)  # open cgroup.procs files; a child writes "0" to enter

    @classmethod
    def create(cls, kind: Literal["v2", "v1"], memory: int, pids: int) -> Cgroup | None:
        """A fresh group, or null where this host does not allow it."""
        name = f"stitchwork-{os.getpid()}-{next(_count)}"
        if kind == "v2":
            if not (ROOT / "cgroup.controllers").exists():
                return None
            _write(ROOT / "cgroup.subtree_control", "+memory +pids")
            folders = [ROOT / name]
            limits = [(folders[0] / "memory.max", memory), (folders[0] / "pids.max", pids)]
            soft = [(folders[0] / "memory.swap.max", 0), (folders[0] / "memory.oom.group", 1)]
        else:
            folders = [ROOT / "memory" / name, ROOT / "pids" / name]
            limits = [(folders[0] / "memory.limit_in_bytes", memory), (folders[1] / "pids.max", pids)]
            soft = [(folders[0] / "memory.memsw.limit_in_bytes", memory)]
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
        return group

    def enter(self) -> None:
        """In the child, between fork and exec."""
        for fd in self.procs:
            os.write(fd, b"0")

    def out_of_memory(self) -> bool:
        """Whether the kernel killed something in the group for memory."""
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

    def kill(self) -> None:
        """Everything in the group, also what left its session."""
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):
                for line in (folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(line), signal.SIGKILL)

    def remove(self) -> None:
        for fd in self.procs:
            os.close(fd)
        self.procs = []
        for folder in self.folders:
            for _ in range(50):  # a killed process leaves its group a moment later
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)


def sweep() -> None:
    """Removes groups that a killed judge left behind."""
    for parent in (ROOT, ROOT / "memory", ROOT / "pids"):
        for folder in parent.glob("stitchwork-*-*"):
            owner = folder.name.split("-")[1]
            if owner.isdigit() and not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()
