"""Files that the tests keep from one run to the next, in the user's cache folder, named by the hash of everything that they depend on.

Several processes share them. Each file is written by one process, in a separate location, and then moved into place; unused files are deleted.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

MOST_BYTES = 1 << 30
UNUSED_SECONDS = 30 * 24 * 3600
IN_USE_SECONDS = 3600  # a run in progress may still need files used since then


def folder(*names: str) -> Path:
    """Creates a folder in the cache folder and returns it."""
    found = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").joinpath("stitchwork-tests", *names)
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    return found


def key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def compiler() -> str:
    """Returns a key that identifies this host's g++: its version, the folders of its headers, and the meaning of `-march=native` on this
    processor."""
    command = ["g++", "-march=native", "-E", "-v", "-x", "c++", os.devnull]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"}).stderr
    return key(said)[:16]


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Blocks other processes that want to create the same file."""
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made(place: Path, make: Callable[[Path], object]) -> Path:
    """Returns `place`, after calling `make` to write this file if it does not exist yet."""
    if not place.exists():
        with alone(place):
            if not place.exists():
                scratch = place.with_name(f"{os.getpid()}-{place.name}")
                make(scratch)
                os.replace(scratch, place)
    used(place)
    return place


def used(place: Path) -> None:
    try:
        os.utime(place)
    except FileNotFoundError:
        pass  # another process has just deleted it


def drop_unused(most: int = MOST_BYTES) -> None:
    """Deletes files that have not been used for a month, and the least recently used ones beyond a total of `most` bytes. Keeps files used within the
    last hour."""
    now, total = time.time(), 0
    for when, size, place in sorted(_files(), reverse=True):
        total += size
        if now - when > UNUSED_SECONDS or (total > most and now - when > IN_USE_SECONDS):
            place.unlink(missing_ok=True)


def _files() -> Iterator[tuple[float, int, Path]]:
    for place in folder().rglob("*"):
        try:
            about = place.stat()
        except FileNotFoundError:
            continue
        if place.is_file():
            yield about.st_mtime, about.st_size, place
