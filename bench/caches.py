"""Measures how a kernel's duration depends on what the GPU did just before, using events around the call and a profiler.

    python bench/caches.py TASK.py PROGRAM.py --kernel rnn_tanh_kernel --out RESULT.json

A timed call of the verifier starts with a flushed L2 cache; the calls that it observes in the `integrity` stage start with the cache as the previous
call left it. A kernel for which this makes a difference is classified as `two-faced`. The program runs in this process, without the sandbox: use
trusted programs only.
"""

# sandboxed: runs programs; run it where they may run

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

CALLS = 8


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def states(device: torch.device) -> dict[str, Callable[[], Any]]:
    tiny, large = torch.zeros(1, device=device), torch.zeros(64 << 20, device=device)  # 256 MiB: several times the size of any L2

    def work(count: int) -> None:
        for _ in range(count):
            tiny.add_(1)

    return {
        "at rest": lambda: None,
        "after 100 ms": lambda: time.sleep(0.1),
        "after 2000 tiny kernels": lambda: work(2000),
        "flushed": large.zero_,
        "flushed, then 2000 tiny kernels": lambda: (large.zero_(), work(2000)),
        "read through": large.sum,
    }


@torch.no_grad()
def by_events(call: Callable[[], Any], before: Callable[[], Any]) -> list[float]:
    found = []
    for _ in range(CALLS):
        torch.cuda.synchronize()
        before()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(round(start.elapsed_time(end), 4))
    return found


@torch.no_grad()
def by_profiler(call: Callable[[], Any], before: Callable[[], Any], kernel: str) -> list[float]:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(CALLS):
            torch.cuda.synchronize()
            before()
            call()
            torch.cuda.synchronize()
    return [round(event.device_time_total / 1e3, 4) for event in seen.events() if kernel in event.name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("--kernel", required=True, help="part of its name")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = torch.device("cuda:0")
    task, program = load(arguments.task, "task"), load(arguments.program, "program")
    torch.manual_seed(0)
    model = program.ModelNew(*task.get_init_inputs()).to(device)
    inputs = [value.to(device) if isinstance(value, torch.Tensor) else value for value in task.get_inputs()]

    def call() -> Any:
        return model(*inputs)

    with torch.no_grad():
        call()
    found = {}
    for name, before in states(device).items():
        found[name] = {"call_ms": by_events(call, before), "kernel_ms": by_profiler(call, before, arguments.kernel)}
        calls, kernels = found[name]["call_ms"], found[name]["kernel_ms"]
        print(f"{name:32} call {min(calls):.3f} to {max(calls):.3f} ms, kernel {min(kernels):.3f} to {max(kernels):.3f}", flush=True)
    head = {"device": torch.cuda.get_device_name(device), "torch": torch.__version__, "task": arguments.task.stem, "kernel": arguments.kernel}
    arguments.out.write_text(json.dumps({**head, "states": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
