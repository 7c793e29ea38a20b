"""Data directories of verifiers, as on a host that has been used before: created once for each set of sources and tools, and linked into each test's
own directory.

Starting with an empty directory is tested in test_command.py and test_builds.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = 3  # the number of recent ones to keep for other sources and tools
SECONDS = 600.0
# The clock's library, this host's measured peak rate, and byte code if there is none next to torch.
_MAKE = """
import compileall, sys
from pathlib import Path
compileall.compile_dir("verifier", quiet=2)
from verifier.startup.bytecode import make
from verifier.devices.opening import open_device
data = Path(sys.argv[1])
device = open_device("cpu", data)
device.ceiling("fp32-strict")
device.close()
make(data)
"""


def prepared(data: Path, headers: bool = False) -> Path:
    """Fills the data directory `data`. `headers`: whether to include the precompiled header for extensions without flags of their own, which takes
    about ten seconds on first use."""
    top = _top()
    with open(top / "lock", "w") as lock:  # workers arrive simultaneously
        fcntl.flock(lock, fcntl.LOCK_EX)
        left_out = None if headers else shutil.ignore_patterns("headers")
        shutil.copytree(_example(top, headers), data, copy_function=_linked, dirs_exist_ok=True, ignore=left_out)
    return data


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on a different file system
        shutil.copy2(source, target)


@cache
def _example(top: Path, headers: bool) -> Path:
    folder = top / _key()
    if not folder.is_dir():
        _make(folder)
        _forget(top, folder)
    if headers and not (folder / "headers").is_dir():
        _run(["-m", "verifier", "prepare", "--plain", "--data-dir", str(folder)])
    return folder


def _make(folder: Path) -> None:
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix="new-"))
    _run(["-c", _MAKE, str(scratch)])
    os.rename(scratch, folder)


def _run(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]


def _top() -> Path:
    """Returns a folder that belongs to this user alone."""
    top = Path(tempfile.gettempdir(), f"stitchwork-prepared-{os.getuid()}")
    top.mkdir(mode=0o700, exist_ok=True)
    assert top.stat().st_uid == os.getuid() and not top.is_symlink()
    return top


def _forget(top: Path, newest: Path) -> None:
    others = sorted((path for path in top.iterdir() if path.is_dir() and path != newest), key=lambda path: path.stat().st_mtime)
    for path in others[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _key() -> str:
    """Covers everything that determines the folder's contents."""
    compiler = shutil.which("g++") or shutil.which("gcc")
    version = subprocess.run([compiler, "-v"], capture_output=True, text=True).stderr if compiler else ""
    text = [importlib.metadata.version("torch"), sys.version, sys.prefix, version, str(ROOT), str(sorted(os.sched_getaffinity(0)))]
    digest = hashlib.sha256("\0".join(text).encode())
    for path in sorted((ROOT / "verifier").rglob("*")):
        if path.suffix in (".py", ".c"):
            digest.update(str(path).encode() + path.read_bytes() + str(path.stat().st_mtime_ns).encode())
    return digest.hexdigest()[:24]
