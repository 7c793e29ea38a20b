"""Caches data that many tests need and that takes a long time to create: the first worker creates it for the others and for later runs.

An entry is identified by a hash of its sources, so none is ever out of date. Entries are never modified: each test works on a copy.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from webapp.environment import ROOT, private_dir

ENOUGH = 4  # entries with the same name: for several checkouts, and for earlier states of them


def kept(name: str, made_from: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """Returns the folder `name`, which `make` fills. The folder has its final name while it is being filled, so a socket in it keeps its address."""
    home = _home()
    folder = home / f"{name}-{_hash(made_from)}"
    ready = folder.with_suffix(".ready")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            private_dir(folder)
            make(folder)
            _forget_others(home, name)
        ready.touch()
    return folder


def copy(kept_folder: Path, place: Path) -> Path:
    subprocess.run(["cp", "-a", str(kept_folder), str(place)], check=True)
    return place


def _home() -> Path:
    home = private_dir(Path(tempfile.gettempdir()) / f"stitchwork-kept-{os.getuid()}")
    status = home.lstat()
    assert status.st_uid == os.getuid() and not home.is_symlink() and status.st_mode & 0o077 == 0, f"{home} is not ours alone"
    return home


def _hash(paths: Iterable[Path]) -> str:
    """Hashes the checkout's path and the contents of its files."""
    found = hashlib.sha256(os.fsencode(ROOT))
    for file in sorted(file for path in paths for file in (path.rglob("*.*") if path.is_dir() else [path])):
        if file.is_file() and file.suffix != ".pyc":
            found.update(os.fsencode(file) + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


def _forget_others(home: Path, name: str) -> None:
    """Deletes the least recently used entries."""
    stamps = sorted(home.glob(f"{name}-*.ready"), key=lambda stamp: stamp.stat().st_mtime)
    for stamp in stamps[: 1 - ENOUGH]:
        stamp.unlink()
        shutil.rmtree(stamp.with_suffix(""), ignore_errors=True)
