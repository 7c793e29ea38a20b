"""Decides which of this host's files a party sees: as arguments of bubblewrap, and as rules for Landlock."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

from verifier.confinement import landlock
from verifier.confinement.probe import SYSTEM, SYSTEM_FILES, probe
from verifier.devices.base import Bind

PACKAGE = Path(__file__).resolve().parents[1]
INSIDE = "/opt/stitchwork"  # where a sandbox shows the package `verifier`, the only visible part of the checkout
# What a party without namespaces may read beside the interpreter: the machine's topology, and nothing of another process.
MACHINE = (
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys/kernel", "/proc/sys/vm"),
    *("/proc/driver", "/sys/devices", "/sys/bus", "/sys/class", "/sys/module", "/sys/kernel/mm"),
)
NODES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def bubblewrap() -> str:
    """Returns bubblewrap's path where it works here, else an empty string. Parties use `required`."""
    return probe().path


@cache
def sealed_proc() -> list[str]:
    """Seals a party's /proc: only entries of its own processes stay writable, since the CUDA driver writes to each of them when it starts. Without
    this, bubblewrap leaves the other files writable for root, who owns them, even without a capability."""
    arguments: list[str] = []
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.is_symlink() or entry.name.isdecimal():
            continue
        inside = (os.path.join(folder, name) for folder, _, names in os.walk(entry.path) for name in names) if entry.is_dir() else [entry.path]
        if any(_writable(path) for path in inside):
            arguments += ["--ro-bind-try", entry.path, entry.path]
    return arguments


def _writable(path: str) -> bool:
    try:
        return bool(os.lstat(path).st_mode & 0o222)
    except OSError:
        return False


@cache
def interpreter_folders() -> tuple[str, ...]:
    """Returns the folders that the interpreter and its packages need: real prefix, virtual environment, site-packages; parents before children."""
    paths = sysconfig.get_paths()
    candidates = {sys.base_prefix, sys.base_exec_prefix, sys.prefix, paths["purelib"], paths["platlib"], paths["stdlib"], paths["platstdlib"]}
    candidates |= {os.path.dirname(os.path.realpath(sys.executable))}
    candidates |= {folder for folder in [*site.getsitepackages(), *sys.path] if os.path.basename(folder) in ("site-packages", "dist-packages")}
    candidates |= {os.path.realpath(folder) for folder in candidates}
    kept: list[str] = []
    for folder in sorted(candidates, key=len):
        covered = any(folder == other or folder.startswith(other + "/") for other in (*kept, *SYSTEM))
        if os.path.isdir(folder) and folder != "/" and not covered:
            kept.append(folder)
    return tuple(kept)


@cache
def path_folders() -> tuple[str, ...]:
    """Returns the folders of PYTHONPATH with packages that a party needs; never a checkout. `python -I` ignores PYTHONPATH, so a party is told."""
    folders = [os.path.realpath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return tuple(
        f for f in folders if any(os.path.isdir(os.path.join(f, name)) for name in ("torch", "numpy", "pydantic")) and f != str(PACKAGE.parent)
    )


def import_path() -> list[str]:
    """Returns where a party finds the package `verifier`, followed by what PYTHONPATH adds."""
    wrap = bool(bubblewrap())
    added = [f"{INSIDE}/path{index}" if wrap else folder for index, folder in enumerate(path_folders())]
    return [INSIDE if wrap else str(PACKAGE.parent), *added]


def rules(wrapped: bool, home: str, binds: list[Bind], writable: list[Bind], inward: bool) -> dict[str, Any] | None:
    """Returns Landlock's rules for a party: exactly what its sandbox shows. Without namespaces they alone keep it from other files."""
    if not landlock.supported():
        return None
    read = [*SYSTEM, *SYSTEM_FILES, *interpreter_folders(), *import_path()[1:]]
    if wrapped:
        read += [INSIDE, "/proc", *(bind.target for bind in binds if not bind.device)]
        write, device = [home, "/dev/shm", *(bind.target for bind in writable)], ["/dev"]  # its /dev holds only its own nodes
        update = ["/proc"]  # it shows only the party's own processes, and the rest is sealed; a rule for /proc/self would not hold for its children
    else:
        read += [str(PACKAGE), *MACHINE, *(bind.source for bind in binds if not bind.device)]
        write, device = [home, "/dev/shm", *(bind.source for bind in writable)], [*NODES, *(bind.source for bind in binds if bind.device)]
        update = ["/proc/self"]
    return {"read": read, "write": write, "device": device, "update": update, "inward": inward}
