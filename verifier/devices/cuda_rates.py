"""Measures the rates that a GPU achieves: the bandwidth of a plain copy, in memory and within the L2 cache, and the rate of a large matrix product
in each kind of arithmetic. Planning uses these figures. The check for programs that are faster than physics allows uses the data-sheet figures
instead, which are higher (`Device.ceiling`)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

COPIED = 1 << 30  # bytes; far more than any L2 cache holds
SIDE, SIDE_HALF = 4096, 8192  # side length of square matrices, in 32 bits and in 16 bits
TIMES, CALLS = 3, 5
CACHED, CACHE_CALLS = 0.25, 100  # size of a copy within the L2 cache, as a share of it; such a copy is short, so its launches must overlap
ROOM = 6 << 30  # number of bytes of device memory that must be free
BELIEVABLE = 0.5  # share of the data-sheet rate; if a result is lower, another process was using the GPU


def rates(torch: Any, device: str, free_bytes: int, cache_bytes: int = 0) -> dict[str, float]:
    """Returns `stream_gbs` and, with the size of the L2 cache, `cache_gbs` (reads and writes combined), `fp32_product_gflops`, `tf32_gflops` and
    `bf16_gflops`. The result is empty if there is not enough memory to measure."""
    if free_bytes < ROOM:
        return {}
    products = {"fp32_product": (torch.float32, SIDE, False), "tf32": (torch.float32, SIDE, True), "bf16": (torch.bfloat16, SIDE_HALF, False)}
    allowed = torch.backends.cuda.matmul.allow_tf32
    try:
        found = {"stream_gbs": stream(torch, device, COPIED)}
        if cache_bytes:
            found["cache_gbs"] = stream(torch, device, int(CACHED * cache_bytes), CACHE_CALLS)
        for name, (dtype, side, tf32) in products.items():
            torch.backends.cuda.matmul.allow_tf32 = tf32
            found[f"{name}_gflops"] = product(torch, device, dtype, side)
        return {name: round(value, 1) for name, value in found.items()}
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.cuda.empty_cache()


def stream(torch: Any, device: str, nbytes: int, calls: int = CALLS) -> float:
    """Returns the rate in GB/s at which a copy of `nbytes` reads and writes."""
    source = torch.empty(nbytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * nbytes / best_seconds(torch, lambda: target.copy_(source), calls) / 1e9


def product(torch: Any, device: str, dtype: Any, side: int) -> float:
    """Times a product of random numbers. Zeros would draw less power, so clocks would stay higher than in a real model."""
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    c = torch.empty_like(a)
    return 2 * side**3 / best_seconds(torch, lambda: torch.mm(a, b, out=c)) / 1e9


def best_seconds(torch: Any, call: Any, calls: int = CALLS) -> float:
    """Returns the time of one call in seconds, measured with events around `calls` calls. It is the best of several repetitions."""
    for _ in range(2):
        call()
    found: list[float] = []
    for _ in range(TIMES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3 / calls)
    return min(found)


def kept(path: Path) -> dict[str, float]:
    """Returns the rates that an earlier judge measured. The result is empty if there are none or if the file is damaged."""
    try:
        return {str(name): float(value) for name, value in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def keep(path: Path, found: dict[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(found))
    os.replace(scratch, path)
