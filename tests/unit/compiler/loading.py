"""Loads programs and tasks as modules of the test process."""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
from collections.abc import Iterator
from pathlib import Path

from tests import kept
from verifier.build.raw import raw_requests


def load(source: str, name: str) -> dict:
    linecache.cache[f"<{name}>"] = (len(source), None, source.splitlines(keepends=True), f"<{name}>")  # Triton reads the source text of its kernels
    names = {"__name__": name}
    tree = ast.parse(source, f"<{name}>")
    with building(tree):
        exec(compile(tree, f"<{name}>", "exec"), names)
    return names


@contextlib.contextmanager
def building(tree: ast.Module) -> Iterator[None]:
    """Holds locks while a program builds its libraries, so that no other process builds the same ones."""
    folder = Path(os.environ["STITCH_BUILD_DIR"])
    libraries = sorted(folder / request.library("") for request in raw_requests(tree) if request.language == "cpp")
    with contextlib.ExitStack() as locks:
        for library in libraries:
            if not library.exists():
                locks.enter_context(kept.alone(library))
        yield
    for library in libraries:
        kept.used(library)
