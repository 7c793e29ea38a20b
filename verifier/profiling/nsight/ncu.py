"""Finds Nsight Compute on this host and describes how to wrap it around a confined party.

If the command is installed in an unusual location, `STITCH_NCU` names it. Only launches of the requested kernels between cudaProfilerStart and Stop
are replayed, so a profile takes only seconds.
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

USUAL = (
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/cuda*/nsight-compute*/ncu",
    "/usr/lib/nsight-compute/ncu",
    "/usr/local/cuda*/bin/ncu",
)
LOG = "counters.csv"
NOT_FOUND = "Nsight Compute (ncu) is not installed: apt-get install nsight-compute from NVIDIA's repository, or set STITCH_NCU"


@dataclass(frozen=True)
class Ncu:
    command: str
    root: str  # the folder that must be visible for it to run
    version: str

    def binds(self) -> list[Bind]:
        """Returns the paths that a sandbox must expose to it, read-only."""
        return [] if self.root.startswith("/usr/") else [Bind(self.root, self.root)]

    def script(self, folder: str, metrics: list[str], kernels: list[str], launches: int) -> str:
        """Returns a shell script that runs "$@" under Nsight Compute and leaves its table in `folder`. `kernels` holds unqualified names; if it is
        empty, every kernel counts. The clocks are left unchanged, because setting them requires privileges on the whole GPU."""
        options = [
            "--csv --page raw --print-units base --clock-control none --replay-mode kernel --target-processes application-only",
            f"--profile-from-start off --launch-count {launches} --metrics {','.join(metrics)}",
        ]
        if kernels:
            options.append(f"--kernel-name-base function --kernel-name 'regex:\\b({'|'.join(kernels)})$'")
        return f'"{self.command}" {" ".join(options)} --log-file {folder}/{LOG} "$@" || exit 11'


@cache
def find_ncu() -> tuple[Ncu | None, str]:
    """Returns Nsight Compute (or null) and the reason why it cannot be used ("" if it can)."""
    chosen = os.environ.get("STITCH_NCU", "")
    on_path = shutil.which("ncu")
    candidates = [chosen, on_path or ""] + [path for pattern in USUAL for path in sorted(glob.glob(pattern), reverse=True)]
    for candidate in candidates:
        command = os.path.realpath(candidate) if candidate else ""
        # The toolkit's `ncu` only searches for the product elsewhere. In a sandbox that exposes a single product, run the product's own `ncu`.
        if not os.access(command, os.X_OK) or (product_root(command) is None and candidate != chosen):
            continue
        version = _version(command)
        if version:
            return Ncu(command, product_root(command) or str(Path(command).parent), version), ""
    if on_path or chosen:
        return None, f"{os.path.basename(chosen or on_path or 'ncu')} is there, but Nsight Compute itself is not, or does not start: set STITCH_NCU"
    return None, NOT_FOUND


def product_root(command: str) -> str | None:
    """Returns the product folder to which a command belongs: the one that contains its `target` folder."""
    for parent in list(Path(command).parents)[:3]:
        if (parent / "target").is_dir():
            return str(parent)
    return None


def _version(command: str) -> str:
    try:
        done = subprocess.run(
            [command, "--version"], capture_output=True, text=True, timeout=30, env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp"}
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    version = re.search(r"\d{4}\.\d+(?:\.\d+)*", done.stdout)
    return version[0] if done.returncode == 0 and version else ""
