"""Makes calls of a program's own C functions visible to torch.profiler, as ranges named `own::<symbol>`.

A CPU program's kernels are C functions called through ctypes (`stitch_build`) or a pybind11 module (`load_inline`), which are invisible to the
profiler. The profiling party installs these wrappers before it imports the program; a timed party never does.

The overhead of a range falls inside the range and would count as the program's work. `torch.profiler.record_function` takes 50 to 150 us with cold
caches, which is up to 12 % of a 1 ms matrix product. `_RecordFunctionFast`, the range that torch.compile puts around its kernels, takes only a few
microseconds.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

PREFIX = "own::"


def traced_library(folder: str, base: type[ctypes.CDLL] = ctypes.CDLL) -> type[ctypes.CDLL]:
    """Returns a `CDLL` whose functions run in a range named after their symbol if the builder produced the library (its file is under `folder`).
    `argtypes`, `restype` and `byref` work as usual. Functions of any other library do not count as the program's own."""
    from torch._C._profiler import _RecordFunctionFast as Range

    class TracedLibrary(base):  # type: ignore[misc, valid-type]  # a base that is known at run time
        _FuncPtr: Any

        def __init__(self, *args: Any, **kwargs: Any):
            super().__init__(*args, **kwargs)
            if not made_by_builder(self._name, folder):
                return
            plain = self._FuncPtr

            class TracedFunction(plain):  # type: ignore[misc, valid-type]  # a base that is known at run time
                _flags_ = plain._flags_
                _restype_ = plain._restype_

                def __call__(self, *arguments: Any, **keywords: Any) -> Any:
                    with Range(PREFIX + getattr(self, "__name__", "call")):
                        return super().__call__(*arguments, **keywords)

            self._FuncPtr = TracedFunction

    return TracedLibrary


def made_by_builder(file: object, folder: str) -> bool:
    return bool(folder) and isinstance(file, str) and os.path.realpath(file).startswith(os.path.realpath(folder) + os.sep)


@contextmanager
def traced_calls(folder: str) -> Iterator[None]:
    """Traces libraries under `folder` that `ctypes.CDLL` loads while the context is open. Import the program inside it."""
    plain = ctypes.CDLL
    ctypes.CDLL = traced_library(folder, plain)  # type: ignore[misc]  # a class is replaced
    try:
        yield
    finally:
        ctypes.CDLL = plain  # type: ignore[misc]  # a class is replaced


def trace_module(module: ModuleType) -> ModuleType:
    """Wraps the functions of an extension module (as returned by `load_inline`) in the same ranges; returns the module."""
    for name, value in list(vars(module).items()):
        if callable(value) and not isinstance(value, type) and not name.startswith("_"):
            setattr(module, name, _traced(name, value))
    return module


def _traced(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    from torch._C._profiler import _RecordFunctionFast as Range

    def call(*arguments: Any, **keywords: Any) -> Any:
        with Range(PREFIX + name):
            return function(*arguments, **keywords)

    call.__name__ = name
    call.__doc__ = getattr(function, "__doc__", None)
    return call


def loaded_extensions(before: frozenset[str], folder: str) -> list[ModuleType]:
    """Returns the extension modules imported since `before` (a snapshot of the names in `sys.modules`) from shared libraries under `folder`."""
    found = []
    for name in set(sys.modules) - before:
        module = sys.modules.get(name)
        if module is not None and made_by_builder(getattr(module, "__file__", None), folder):
            found.append(module)
    return found
