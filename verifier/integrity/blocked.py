"""Makes one call of a program with torch's arithmetic blocked. This reveals which operators the program needs, from which line, and what it does when
they fail.

`TorchDispatchMode` sees every operator below autograd, regardless of whether it is called from Python, `torch.nn.functional`, `torch.ops`, or C++
(`at::matmul`) on this thread. Views, allocations, copies, casts and metadata queries remain allowed.
"""

# sandboxed: calls programs

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.utils._python_dispatch import TorchDispatchMode

MAX_OPERATORS = 48
_ALLOWED = {
    *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"),
    *("zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "scalar_tensor", "fill_", "fill", "zero_", "zero", "arange"),
    *("copy_", "copy", "_to_copy", "clone", "contiguous", "_copy_from", "_copy_from_and_resize", "lift_fresh", "lift_fresh_copy", "lift"),
    *("view", "_unsafe_view", "reshape", "_reshape_alias", "_reshape_copy", "alias", "detach", "detach_", "as_strided", "as_strided_", "expand"),
    *("permute", "transpose", "t", "transpose_", "t_", "squeeze", "unsqueeze", "squeeze_", "unsqueeze_", "slice", "select", "narrow", "split"),
    *("split_with_sizes", "chunk", "unbind", "diagonal", "view_as_real", "view_as_complex", "real", "imag", "unfold", "movedim", "swapaxes"),
    *("resize_", "resize_as_", "set_", "_local_scalar_dense", "is_same_size", "is_pinned", "pin_memory", "_pin_memory", "record_stream"),
    *("cat", "stack", "_nested_tensor_size", "sym_size", "sym_stride", "sym_numel", "size", "stride", "storage_offset", "numel", "is_nonzero"),
    *("_assert_async", "_assert_scalar", "_assert_tensor_metadata", "equal", "item", "device", "dim", "is_contiguous", "_version", "data"),
}


class ComputeBlocked(RuntimeError):
    """Raised when an operator is called while torch compute is blocked."""


def is_compute(function: Any) -> bool:
    """Returns whether an operator is torch's own arithmetic, that is, neither a view, an allocation, a copy or a cast, nor an operator that the
    program registered itself."""
    namespace, _, name = function._schema.name.partition("::")
    if namespace not in ("aten", "prims", "mkldnn", "quantized", "torchvision", "c10d"):
        return False
    return name not in _ALLOWED and not getattr(function, "is_view", False)


def program_line() -> int | None:
    """Returns the innermost program line in the current call stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("program.py"):
            return frame.f_lineno
        frame = frame.f_back
    return None


class Watch(TorchDispatchMode):
    """Counts compute operators by name and records the first line that calls each of them. With `block`, the operator raises an exception instead."""

    def __init__(self, block: bool):
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.block = block
        self.seen: dict[str, list[Any]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Prevents a slow import. Torch reads this value when the class is created. If it were True, torch would wrap the method, and the first
        operator would then import torch._dynamo, 800 modules that take seconds."""
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        look = self._look_beside_dynamo if "torch._dynamo" in sys.modules else self._look
        return look(function, args, kwargs or {})

    def _look(self, function: Any, args: Any, kwargs: Any) -> Any:
        if is_compute(function):
            name = function._schema.name.replace("::", ".")
            entry = self.seen.setdefault(name, [0, program_line()])
            entry[0] += 1
            if self.block:
                raise ComputeBlocked(f"{name} is blocked")
        return function(*args, **kwargs)

    _look_beside_dynamo = _disable_dynamo(_look, recursive=True)  # a program's torch.compile never traces it


class Exceptions:
    """While open, records the class and line of each exception that is raised in the program's own frames."""

    def __init__(self) -> None:
        self.raised: list[tuple[str, int]] = []

    def __enter__(self) -> Exceptions:
        self.before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self.before)

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith("program.py"):
            return None
        if event == "exception" and argument[0] not in (StopIteration, GeneratorExit, StopAsyncIteration) and len(self.raised) < 64:
            self.raised.append((argument[0].__name__, frame.f_lineno))
        frame.f_trace_lines = False
        return self._trace


def watch(call: Callable[[], Any]) -> dict[str, Any]:
    """Makes two more calls: one that is only observed, and one with torch compute blocked. Returns fields of `Evidence`."""
    counted = Watch(block=False)
    with Exceptions() as exceptions, counted:
        call()
    # If a call returned normally, it has swallowed every exception that was raised below it.
    swallowed = [{"error": name, "line": line} for name, line in dict.fromkeys(exceptions.raised)]
    needs = [{"name": name, "calls": calls, "line": line} for name, (calls, line) in list(counted.seen.items())[:MAX_OPERATORS]]
    blocked = ""
    if needs:
        try:
            with Watch(block=True):
                call()
            blocked = "returned"
        except BaseException:
            blocked = "raised"
    return {"needs": needs, "swallowed": swallowed[:32], "blocked": blocked}


def compiled_graphs() -> int:
    """Returns the number of graphs that torch.compile has created in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", None)
    try:
        return int(counters["stats"]["unique_graphs"]) if counters is not None else 0
    except (KeyError, TypeError, ValueError):
        return 0


def settings() -> dict[str, str]:
    """Returns torch's switches that trade precision or determinism for speed, as well as its thread count and default dtype."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    switches: dict[str, Callable[[], Any]] = {
        "cuda.matmul.allow_tf32": lambda: cuda.matmul.allow_tf32,
        "cudnn.allow_tf32": lambda: cudnn.allow_tf32,
        "cudnn.benchmark": lambda: cudnn.benchmark,
        "cudnn.enabled": lambda: cudnn.enabled,
        "allow_fp16_reduced_precision_reduction": lambda: cuda.matmul.allow_fp16_reduced_precision_reduction,
        "allow_bf16_reduced_precision_reduction": lambda: cuda.matmul.allow_bf16_reduced_precision_reduction,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "num_threads": torch.get_num_threads,
        "default_dtype": torch.get_default_dtype,
        "flush_denormal": lambda: torch.tensor(1e-40, dtype=torch.float32).mul(1.0).item() == 0.0,
    }
    found = {}
    for name, read in switches.items():
        try:
            found[name] = str(read())
        except (RuntimeError, AttributeError):  # torch raises an error if a program used both its old and its new interface
            found[name] = "not to be told"
    return found
