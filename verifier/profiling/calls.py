"""Makes the profiled calls in the party: after a warm-up, each call runs in a range named `iter` that ends when the device is idle.

In one additional call, modules and operators have ranges. These cost time on the host, so that call is used only to transfer its ranges to the others
(`annotating.py`).
"""

# sandboxed: calls the models that tasks and programs define

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from verifier.profiling.digest import ANNOTATED, ITERATION
from verifier.profiling.ranges import MODULE

WARM_UP = 3


def profiled_calls(call: Callable[[], Any], iterations: int, tool: str, sync: Callable[[], None]) -> bytes:
    """Makes the calls. Under "nsys" and "ncu", the ranges are NVTX ranges and the result is empty, because the profiler that runs this process holds
    the recording. Under "sanitizer", the calls are made without ranges. Otherwise, the result is torch.profiler's Chrome trace."""
    with torch.no_grad():
        if tool == "sanitizer":
            for _ in range(iterations):
                call()
                sync()
            return b""
        for _ in range(WARM_UP):
            call()
        sync()
        if tool in ("nsys", "ncu"):
            _under_nsight(call, iterations, sync)
            return b""
        return _under_torch(call, iterations, sync)


def _under_nsight(call: Callable[[], Any], iterations: int, sync: Callable[[], None]) -> None:
    torch.cuda.profiler.start()
    for _ in range(iterations):
        torch.cuda.nvtx.range_push(ITERATION)
        call()
        sync()
        torch.cuda.nvtx.range_pop()
    nvtx = (torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop)
    with _ranges_of_modules(*nvtx), torch.autograd.profiler.emit_nvtx():
        _annotated(call, sync, *nvtx)
    torch.cuda.profiler.stop()


def _under_torch(call: Callable[[], Any], iterations: int, sync: Callable[[], None]) -> bytes:
    from torch.profiler import record_function

    from verifier.profiling.torch_recorder import recording  # other tools need neither it nor torch's profiler

    with recording(torch.cuda.is_available()) as recorded:
        for _ in range(iterations):
            with record_function(ITERATION):
                call()
                sync()
        ranges: list[record_function] = []

        def push(name: str) -> None:
            ranges.append(record_function(name))
            ranges[-1].__enter__()

        def pop() -> None:
            ranges.pop().__exit__(None, None, None)

        with _ranges_of_modules(push, pop):
            _annotated(call, sync, push, pop)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        recorded.export_chrome_trace(path)
        return Path(path).read_bytes()


def _annotated(call: Callable[[], Any], sync: Callable[[], None], push: Callable[[str], Any], pop: Callable[[], Any]) -> None:
    push(ANNOTATED)
    # If a program works only without hooks, the recording made so far is kept.
    with contextlib.suppress(Exception):
        call()
        sync()
    pop()


@contextlib.contextmanager
def _ranges_of_modules(push: Callable[[str], Any], pop: Callable[[], Any]) -> Iterator[None]:
    """Until the context ends, gives every module call a range with the module's class and its path from the outermost module."""
    paths: dict[int, str] = {}
    depth = 0

    def enter(module: torch.nn.Module, _: Any) -> None:
        nonlocal depth
        if depth == 0:
            paths.clear()
            paths.update((id(inner), path) for path, inner in module.named_modules())
        depth += 1
        push(f"{MODULE}{paths.get(id(module)) or 'model'} ({type(module).__name__})")

    def leave(*_: Any) -> None:
        nonlocal depth
        if depth:  # a call that began before the hooks were installed has no range
            depth -= 1
            pop()

    modules = torch.nn.modules.module
    hooks = [modules.register_module_forward_pre_hook(enter), modules.register_module_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
