"""Importing torch in four fifths of the time. It does the same; only what it looks for in vain, or over and over, is not looked for."""

from __future__ import annotations

import contextlib
import gc
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def swift_imports() -> Iterator[None]:
    """No garbage collection: what a library defines stays, and looking for garbage among it takes a seventh of the time; later, amid a call, it is
    not looked at either. And a frame's module by its name: torch asks for it at each of 200 registrations, and for the answer `inspect` resolves the
    paths of all modules there are, 11,000 of the 30,000 system calls."""
    plain = inspect.getmodule

    def getmodule(object: Any, _filename: str | None = None) -> types.ModuleType | None:
        if isinstance(object, types.FrameType):
            module = sys.modules.get(object.f_globals.get("__name__", ""))
            if module is not None:
                return module
        return plain(object, _filename)

    gc.disable()
    inspect.getmodule = getmodule
    try:
        yield
    finally:
        inspect.getmodule = plain
        gc.freeze()
        gc.enable()
