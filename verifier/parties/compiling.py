"""Runs torch.compile's compilations without holding the device permit, because they are host work and can continue while another judge measures.

Dynamo reports when a compilation begins and ends; the compiled function runs only afterwards. During a compilation, Inductor uses the device only to
load the kernels that it has built and, for matrix products of odd sizes, to measure whether padding helps. Those steps take the permit. Modes that
autotune by timing (max-autotune) do not use this module.
"""

# sandboxed: active while the models that tasks define are compiled

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from verifier.parties.permit import Permit

ON_DEVICE = (  # functions through which a compilation uses the device; checked in PyTorch 2.11 and 2.13
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", "_make_launchers"),
    ("torch._inductor.runtime.benchmarking", "InductorBenchmarker", "benchmark_gpu"),
    ("torch._inductor.runtime.benchmarking", "TritonBenchmarker", "benchmark_gpu"),
    ("torch._inductor.fx_passes.pad_mm", "", "_should_pad"),
)


class Compiling:
    """Releases `permit`, which this process holds, during each compilation and while the compiler is being imported. `sync` waits for work already
    submitted to the device. Raises `AttributeError` or `ImportError`, without changing anything, if PyTorch lacks the functions that this class
    depends on."""

    def __init__(self, permit: Permit, sync: Callable[[], None]):
        sync()
        with permit.away():
            from torch._dynamo.callback import CallbackTrigger, callback_handler

            owners = [(_owner(module, owner), name) for module, owner, name in ON_DEVICE]

        self.permit = permit
        self.sync = sync
        self.given = False
        self.depth = 0
        self.dynamo = CallbackTrigger.DYNAMO
        inner = [(owner, name, getattr(owner, name)) for owner, name in owners]
        for owner, name, work in inner:
            setattr(owner, name, self._on_device(work))
        callback_handler.register_start_callback(self._begin)
        callback_handler.register_end_callback(self._end)

    def _begin(self, told: Any) -> None:
        if told.callback_trigger is self.dynamo:  # PyTorch also calls this when it records a CUDA graph
            self.sync()
            self.given = True
            self.permit.put()

    def _end(self, told: Any) -> None:
        if self.given:
            self.permit.take()
            self.given = False

    def _on_device(self, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def permitted(*arguments: Any, **named: Any) -> Any:
            if not self.given or self.depth:
                return work(*arguments, **named)
            self.depth += 1
            try:
                with self.permit.held():
                    try:
                        return work(*arguments, **named)
                    finally:
                        self.sync()
            finally:
                self.depth -= 1

        return permitted


def _owner(module: str, name: str) -> Any:
    found = importlib.import_module(module)
    return getattr(found, name) if name else found
