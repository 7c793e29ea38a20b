"""The tools that detect invalid accesses: compute-sanitizer for CUDA kernels, AddressSanitizer and UndefinedBehaviorSanitizer for C++ on the CPU.

If NVIDIA's command is installed in an unusual location, `STITCH_COMPUTE_SANITIZER` names it.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from verifier.devices.base import Bind

ON_GPU = ("memcheck", "racecheck", "initcheck", "synccheck")
ON_CPU = ("address", "undefined")
USUAL = (
    "/usr/local/cuda*/compute-sanitizer/compute-sanitizer",
    "/opt/nvidia/compute-sanitizer*/compute-sanitizer",
    "/usr/local/cuda*/bin/compute-sanitizer",
    "/usr/lib/nvidia-cuda-toolkit/compute-sanitizer/compute-sanitizer",
)
LOG = "findings"
SHOWN = 200  # maximum number of findings that a tool writes
INSIDE_COMPILERS = "/opt/sanitizing-compilers"
COMPILERS = ("g++", "c++")


@dataclass(frozen=True)
class ComputeSanitizer:
    command: str
    root: str
    version: str

    def binds(self) -> list[Bind]:
        return [] if self.root.startswith("/usr/") else [Bind(self.root, self.root)]

    def script(self, tool: str, folder: str) -> str:
        """Returns a shell script that runs "$@" under `tool`. Each tensor gets its own allocation, because an out-of-bounds access within torch's
        pools would hit another tensor."""
        options = [f"--tool {tool} --print-limit {SHOWN} --target-processes application-only --show-backtrace device --log-file {folder}/{LOG}"]
        if tool == "memcheck":
            options.append("--leak-check no --report-api-errors no")
        if tool == "racecheck":
            options.append("--racecheck-report analysis")
        return f'PYTORCH_NO_CUDA_MEMORY_CACHING=1 "{self.command}" {" ".join(options)} "$@" || exit 11'


@cache
def find_compute_sanitizer() -> tuple[ComputeSanitizer | None, str]:
    """Returns the command (or null) and the reason why it cannot be used."""
    chosen = os.environ.get("STITCH_COMPUTE_SANITIZER", "")
    candidates = [
        chosen,
        *(path for pattern in USUAL[:2] for path in sorted(glob.glob(pattern), reverse=True)),
        shutil.which("compute-sanitizer") or "",
    ]
    candidates += [path for pattern in USUAL[2:] for path in sorted(glob.glob(pattern), reverse=True)]
    for candidate in candidates:
        command = os.path.realpath(candidate) if candidate else ""
        if not os.access(command, os.X_OK):
            continue
        try:
            done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=30, env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"})
        except (OSError, subprocess.SubprocessError):
            continue
        version = re.search(r"\d{4}\.\d+(?:\.\d+)*", done.stdout)
        if done.returncode == 0 and version:
            return ComputeSanitizer(command, str(Path(command).parent), version[0]), ""
    return None, "compute-sanitizer is not installed: it comes with the CUDA toolkit (cuda-sanitizer-13-0); or set STITCH_COMPUTE_SANITIZER"


@dataclass(frozen=True)
class AddressSanitizer:
    """g++'s AddressSanitizer. `library` must be the first library loaded into the process."""

    compiler: str
    library: str
    version: str

    def write_compilers(self, folder: Path) -> None:
        """Writes wrapper commands, named like the compilers, that add the checks to every compilation."""
        checks = "-fsanitize=address,undefined -fsanitize-recover=address,undefined -fno-omit-frame-pointer -g1"
        for name in COMPILERS:
            path = folder / name
            path.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {self.compiler} {checks} "$@"\n')
            path.chmod(0o755)

    def builder_script(self) -> str:
        """Returns the script that wraps a builder, for programs that also load what they compiled."""
        return f'LD_PRELOAD="{self.library}" ASAN_OPTIONS=detect_leaks=0:halt_on_error=0 exec "$@"'

    def script(self, folder: str) -> str:
        address = f"detect_leaks=0:halt_on_error=0:detect_odr_violation=0:allocator_may_return_null=1:exitcode=0:log_path={folder}/{LOG}"
        # When both run in one process, UndefinedBehaviorSanitizer writes to standard error regardless of its options.
        return f'LD_PRELOAD="{self.library}" ASAN_OPTIONS={address} UBSAN_OPTIONS=halt_on_error=0 "$@" || exit 11'


@cache
def find_address_sanitizer() -> tuple[AddressSanitizer | None, str]:
    compiler = shutil.which("g++", path="/usr/local/bin:/usr/bin:/bin")
    if compiler is None:
        return None, "g++ is not installed: apt-get install g++"
    library = _printed([compiler, "-print-file-name=libasan.so"])
    if "/" not in library or not os.path.exists(library):
        return None, "g++ has no AddressSanitizer here: apt-get install libasan8 (or the version that matches your g++)"
    return AddressSanitizer(compiler, os.path.realpath(library), f"g++ {_printed([compiler, '-dumpfullversion'])}"), ""


def _printed(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
