"""Makes the calls that a profiler watches, in the party: after a warm-up, each in a range named `iter` that ends when the device is idle."""

# sandboxed: calls the models that tasks and programs define

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from verifier.profiling.digest import ITERATION

WARM_UP = 3


def profiled_calls(call: Callable[[], Any], iterations: int, tool: str, sync: Callable[[], None]) -> bytes:
    """Makes the calls. Under "nsys" and "ncu" the ranges are NVTX ranges and the result is empty, since the profiler around this process holds the
    recording. Under "sanitizer" only the calls are made. Otherwise the result is torch.profiler's Chrome trace."""
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
    torch.cuda.profiler.stop()


def _under_torch(call: Callable[[], Any], iterations: int, sync: Callable[[], None]) -> bytes:
    from torch.profiler import record_function

    from verifier.profiling.torch_recorder import recording

    with recording(torch.cuda.is_available()) as recorded:
        for _ in range(iterations):
            with record_function(ITERATION):
                call()
                sync()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        recorded.export_chrome_trace(path)
        return Path(path).read_bytes()
