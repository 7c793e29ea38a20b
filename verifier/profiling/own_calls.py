"""Makes calls of a program's own C functions visible to torch.profiler, as ranges named `own::<symbol>`.

A CPU program's kernels are C functions behind ctypes (`stitch_build`) or a pybind11 module (`load_inline`), which the profiler does not see. The
party that profiles installs this before it imports the program; never the party that is timed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

PREFIX = "own::"


def traced_library(base: type[ctypes.CDLL] = ctypes.CDLL) -> type[ctypes.CDLL]:
    """A `CDLL` whose functions run in a range named after their symbol; `argtypes`, `restype` and `byref` work as before."""
    from torch.profiler import record_function

    class TracedLibrary(base):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any):
            super().__init__(*args, **kwargs)
            plain = self._FuncPtr

            class TracedFunction(plain):  # type: ignore[misc, valid-type]
                _flags_ = plain._flags_
                _restype_ = plain._restype_

                def __call__(self, *arguments: Any, **keywords: Any) -> Any:
                    with record_function(PREFIX + getattr(self, "__name__", "call")):
                        return super().__call__(*arguments, **keywords)

            self._FuncPtr = TracedFunction

    return TracedLibrary


@contextmanager
def traced_calls() -> Iterator[None]:
    """While this is open, libraries that `ctypes.CDLL` loads are traced. Import the program inside it."""
    plain = ctypes.CDLL
    ctypes.CDLL = traced_library(plain)  # type: ignore[misc]
    try:
        yield
    finally:
        ctypes.CDLL = plain  # type: ignore[misc]


def trace_module(module: ModuleType) -> ModuleType:
    """Wraps the functions of an extension module (as `load_inline` returns) in the same ranges; returns the module."""
    for name, value in list(vars(module).items()):
        if callable(value) and not isinstance(value, type) and not name.startswith("_"):
            setattr(module, name, _traced(name, value))
    return module


def _traced(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    from torch.profiler import record_function

    def call(*arguments: Any, **keywords: Any) -> Any:
        with record_function(PREFIX + name):
            return function(*arguments, **keywords)

    call.__name__ = name
    call.__doc__ = getattr(function, "__doc__", None)
    return call


def loaded_extensions(before: frozenset[str]) -> list[ModuleType]:
    """Extension modules imported since `before` (a snapshot of `sys.modules`' names) from a file that is a shared library."""
    found = []
    for name in set(sys.modules) - before:
        module = sys.modules.get(name)
        if module is not None and str(getattr(module, "__file__", "") or "").endswith(".so"):
            found.append(module)
    return found
