"""Decides which of the host's files a party can see, as bubblewrap arguments and as Landlock rules."""

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
INSIDE = "/opt/stitchwork"  # the path of the `verifier` package in a sandbox; it is the only visible part of the checkout
# Paths that a party without namespaces can read in addition to the interpreter: the machine's topology, but nothing about other processes.
MACHINE = (
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys/kernel", "/proc/sys/vm"),
    *("/proc/driver", "/sys/devices", "/sys/bus", "/sys/class", "/sys/module", "/sys/kernel/mm"),
)
NODES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def bubblewrap() -> str:
    """Returns bubblewrap's path if it works here; otherwise, returns an empty string. Parties use `required`."""
    return probe().path


@cache
def sealed_proc() -> list[str]:
    """Seals a party's /proc. Only entries for the party's own processes stay writable, because the CUDA driver writes to each of them when it starts.
    Without this seal, root, who owns the other files, could write to them even without capabilities."""
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
    """Returns the folders that the interpreter and its packages need (real prefix, virtual environment, site-packages). Parent folders come before
    their children."""
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
    """Returns the PYTHONPATH folders that contain packages a party needs, but never a checkout. `python -I` ignores PYTHONPATH, so these folders are
    passed to the party explicitly."""
    folders = [os.path.realpath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return tuple(
        f for f in folders if any(os.path.isdir(os.path.join(f, name)) for name in ("torch", "numpy", "pydantic")) and f != str(PACKAGE.parent)
    )


def import_path() -> list[str]:
    """Returns the path at which a party finds the `verifier` package, followed by the additional folders from PYTHONPATH."""
    wrap = bool(bubblewrap())
    added = [f"{INSIDE}/path{index}" if wrap else folder for index, folder in enumerate(path_folders())]
    return [INSIDE if wrap else str(PACKAGE.parent), *added]


def rules(wrapped: bool, home: str, binds: list[Bind], writable: list[Bind], inward: bool) -> dict[str, Any] | None:
    """Returns a party's Landlock rules, which match the paths that its sandbox exposes. Without namespaces, these rules are all that protects other
    files from the party."""
    if not landlock.supported():
        return None
    read = [*SYSTEM, *SYSTEM_FILES, *interpreter_folders(), *import_path()[1:]]
    if wrapped:
        read += [INSIDE, "/proc", *(bind.target for bind in binds if not bind.device)]
        write, device = [home, "/dev/shm", *(bind.target for bind in writable)], ["/dev"]  # the party's /dev holds only its own nodes
        update = ["/proc"]  # shows only the party's own processes, and everything else is sealed; a rule for /proc/self would not cover its children
    else:
        read += [str(PACKAGE), *MACHINE, *(bind.source for bind in binds if not bind.device)]
        write, device = [home, "/dev/shm", *(bind.source for bind in writable)], [*NODES, *(bind.source for bind in binds if bind.device)]
        update = ["/proc/self"]
    return {"read": read, "write": write, "device": device, "update": update, "inward": inward}
