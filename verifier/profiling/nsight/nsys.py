"""Finds Nsight Systems on this host and describes how to wrap it around a confined party.

It ships separately, with CUDA, or inside Nsight Compute; in the last case, its importer also needs libdw. If it is installed in an unusual location,
`STITCH_NSYS` names the command and `STITCH_NSYS_LIBRARIES` names a folder with its libraries.
"""

from __future__ import annotations

import ctypes.util
import glob
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from verifier.devices.base import Bind

USUAL = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/usr/local/cuda*/nsight-systems*/bin/nsys",
    "/usr/lib/nsight-systems/target-linux-x64/nsys",
)
INSIDE_LIBRARIES = "/opt/nsys-libraries"
_WRAPPER = re.compile(r"exec\s+\"?(?P<command>/\S*nsys)\b")
_WRAPPED_LIBRARIES = re.compile(r"LD_LIBRARY_PATH=\"?(?P<folder>/[^\s:$\"]+)")


@dataclass(frozen=True)
class Nsys:
    """Nsight Systems on this host. `libraries` is a folder for LD_LIBRARY_PATH, or ""; `problem` explains why it cannot produce reports, or is ""."""

    command: str
    root: str  # the folder that must be visible for it to run
    version: str
    libraries: str = ""
    problem: str = ""

    def binds(self) -> list[Bind]:
        """Returns the paths that a sandbox must expose to it, read-only."""
        binds = [] if self.root.startswith("/usr/") else [Bind(self.root, self.root)]
        return binds + ([Bind(self.libraries, INSIDE_LIBRARIES)] if self.libraries else [])

    def script(self, folder: str, path: list[str], wrapped: bool) -> str:
        """Returns a shell script that profiles "$@" between cudaProfilerStart and Stop, exports to SQLite, and leaves `timeline` in `folder`.

        Everything runs in the party's sandbox, even the code that reads the export, because a party could have written that file itself; the judge
        accepts only a timeline. Sampling stays off, because the same run took 106 s and 2 GB with it. CUDA graphs are traced by node, because the
        timeline of a program that is a single graph would otherwise contain no kernels. The raw report contains the environment (here the sandbox's,
        which is cleared) and is deleted where it was created.
        """
        libraries = INSIDE_LIBRARIES if wrapped else self.libraries
        given = f"LD_LIBRARY_PATH={libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}} " if self.libraries else ""
        options = "-t cuda,nvtx --cuda-graph-trace=node --sample=none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop"
        read = (
            f"import sys; sys.path += {path!r}; from verifier.profiling.nsight.nsys_import import write_timeline; "
            f"write_timeline({folder + '/export.sqlite'!r}, {folder + '/timeline'!r})"
        )
        return "\n".join(
            [
                f'{given}"{self.command}" profile {options} --force-overwrite=true -o {folder}/raw "$@" || exit 11',
                f'{given}"{self.command}" export --type sqlite --force-overwrite=true -o {folder}/export.sqlite {folder}/raw.nsys-rep || exit 12',
                f"rm -f {folder}/raw.*",
                f'"{sys.executable}" -I -c "{read}" || exit 13',
                f"rm -f {folder}/export.sqlite",
            ]
        )


@cache
def find_nsys() -> tuple[Nsys | None, str]:
    """Returns Nsight Systems (or null) and the reason why it cannot be used ("" if it can)."""
    libraries = os.environ.get("STITCH_NSYS_LIBRARIES", "")
    chosen = [os.environ["STITCH_NSYS"]] if os.environ.get("STITCH_NSYS") else []
    on_path = shutil.which("nsys")
    candidates = chosen + ([on_path] if on_path else []) + [path for pattern in USUAL for path in sorted(glob.glob(pattern), reverse=True)]
    found: Nsys | None = None
    for candidate in candidates:
        command, wrapped = unwrap(candidate)
        if not os.access(command, os.X_OK):
            continue
        found = _examine(command, libraries or wrapped)
        if found is not None and not found.problem:
            return found, ""
    if found is not None:
        return found, found.problem
    return None, "Nsight Systems (nsys) is not installed: apt-get install nsight-systems-cli from NVIDIA's repository, or set STITCH_NSYS"


def unwrap(command: str) -> tuple[str, str]:
    """Returns the real command and the library folder that a wrapper shell script sets. A sandbox cannot expose a wrapper located elsewhere."""
    try:
        with open(command, "rb") as file:
            head = file.read(4096)
    except OSError:
        return command, ""
    if not head.startswith(b"#!"):
        return os.path.realpath(command), ""
    text = head.decode(errors="replace")
    inner, folder = _WRAPPER.search(text), _WRAPPED_LIBRARIES.search(text)
    return (os.path.realpath(inner["command"]) if inner else command), folder["folder"] if folder else ""


def _examine(command: str, libraries: str) -> Nsys | None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp"} | ({"LD_LIBRARY_PATH": libraries} if libraries else {})
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=20, env=environment)
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\d+\.\d+(?:\.\d+)*", done.stdout)
    if done.returncode != 0 or version is None:
        return None
    missing = missing_libraries(command, libraries)
    problem = f"its importer needs {', '.join(missing)}: {_package(missing)}" if missing else ""
    return Nsys(command, product_root(command), version[0], libraries, problem)


def product_root(command: str) -> str:
    """Returns the product folder: .../nsight-compute/2025.3.1 for .../nsight-compute/2025.3.1/host/target-linux-x64/nsys."""
    path = Path(command)
    for parent in path.parents:
        if parent.parent.name in ("nsight-compute", "nsight-systems", "nsight-systems-cli") or parent.name == "nsight-systems":
            return str(parent)
    return str(path.parent.parent)


def missing_libraries(command: str, libraries: str) -> list[str]:
    """Returns the libraries that this host lacks although Nsight Systems' importer is known to need them."""
    missing = []
    for soname, plain in (("libdw.so.1", "dw"), ("libelf.so.1", "elf")):
        beside = glob.glob(f"{product_root(command)}/**/{soname}", recursive=True)
        given = libraries and os.path.exists(os.path.join(libraries, soname))
        if not beside and not given and ctypes.util.find_library(plain) is None and not _in_cache(soname):
            missing.append(soname)
    return missing


def _in_cache(soname: str) -> bool:
    usual = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/local/lib")
    return any(os.path.exists(os.path.join(folder, soname)) for folder in usual)


def _package(missing: list[str]) -> str:
    packages = {"libdw.so.1": "libdw1", "libelf.so.1": "libelf1"}
    return "apt-get install " + " ".join(packages[name] for name in missing)
