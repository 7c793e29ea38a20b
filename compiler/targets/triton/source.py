"""The building blocks of a printed Triton module: imports, shared functions, kernels and launchers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from compiler.graph.ir import Kernel

IMPORTS = ["import triton", "import triton.language as tl"]
LIBDEVICE = "from triton.language.extra import libdevice"

AT_LEAST = '''\
@triton.jit
def at_least(x, low):
    """The larger of two values; NaN stays NaN, as in PyTorch."""
    return tl.maximum(x, low, propagate_nan=tl.PropagateNan.ALL)
'''
AT_MOST = '''\
@triton.jit
def at_most(x, high):
    """The smaller of two values; NaN stays NaN, as in PyTorch."""
    return tl.minimum(x, high, propagate_nan=tl.PropagateNan.ALL)
'''
SIGMOID = """\
@triton.jit
def sigmoid_of(x):
    return tl.div_rn(1.0, 1.0 + libdevice.exp(-x))
"""


def sources(kernels: Iterable[Kernel]) -> list[str]:
    """Returns the functions that these kernels call. The maximum in a softmax needs none of them, since the operations after it propagate NaN
    anyway."""
    ops = [op for kernel in kernels for op in kernel.ops.values()]
    called = {op.attr if op.kind == "reduce" else op.kind for op in ops if op.dtype == "float32"}
    scalar = {op.kind for op in ops if op.dtype == "float32" and op.kind != "reduce"}
    parts = [AT_LEAST] if "max" in scalar or "amax" in called else []
    parts += [AT_MOST] if "min" in scalar or "amin" in called else []
    return parts + ([SIGMOID] if "sigmoid" in called else [])


def named(pointers: Iterable[str], body: list[str]) -> list[str]:
    """Returns the pointers that occur in a kernel's lines."""
    return [name for name in pointers if any(re.search(rf"\b{re.escape(name)}\b", line) for line in body)]


def function(name: str, parameters: list[str], body: list[str]) -> list[str]:
    return ["@triton.jit", f"def {name}({', '.join(parameters)}):", *(f"    {line}" for line in body)]


def launcher(name: str, parameters: list[str], launches: list[str]) -> list[str]:
    return ["", "", f"def launch_{name}({', '.join(parameters)}):", *(f"    {line}" for line in launches)]
