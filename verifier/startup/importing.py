"""Imports torch in four fifths of the time. The result is the same; only futile and repeated lookups are skipped."""

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
    """Speeds up imports in two ways. First, it turns off garbage collection: a library's definitions are permanent, and searching them for garbage
    takes a seventh of the time. They are not searched later, during a call, either. Second, it finds a frame's module by name: torch looks the module
    up at each of 200 registrations, and `inspect` finds it by resolving the paths of all modules, which causes 11,000 of the 30,000 system calls."""
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
