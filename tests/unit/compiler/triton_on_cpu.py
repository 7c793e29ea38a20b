"""Triton's interpreter, which runs kernels block by block in NumPy and thus shows, without a GPU, the results that a printed program computes.

Missing features of the interpreter are added here: functions of CUDA's math library are replaced with ones on the CPU, masked-out elements are NaN
(on a GPU
they are undefined), and a product with `input_precision="tf32"` uses TF32 operands, as a tensor core does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

FOLDER = next((Path(__file__).parents[3] / ".venv").glob("triton-*.*.?"), None)  # installed by scripts/triton
EXACT = {"rint": np.rint, "trunc": np.trunc, "floor": np.floor, "ceil": np.ceil}


def special(name: str):
    """Returns a function that computes in fp64 with torch, because NumPy has no erf, for example."""
    function = {"pow": torch.pow, "exp2": torch.exp2}.get(name) or getattr(torch, name)
    return lambda *values: function(*(torch.from_numpy(np.ascontiguousarray(v, dtype=np.float64)) for v in values)).numpy()


def available() -> bool:
    return FOLDER is not None or find_spec("triton") is not None


@contextmanager
def imported() -> Iterator[None]:
    """Imports a fresh copy of Triton, and restores the previous modules afterwards."""
    held = {name: sys.modules.pop(name) for name in list(sys.modules) if is_triton(name)}
    before = list(sys.path)
    sys.path[:0] = [str(FOLDER)] if FOLDER is not None else []
    try:
        yield
    finally:
        sys.path[:] = before
        for name in [name for name in sys.modules if is_triton(name)]:
            del sys.modules[name]
        sys.modules.update(held)


@contextmanager
def interpreted() -> Iterator[None]:
    """Provides Triton as imported with TRITON_INTERPRET set, plus the features that the interpreter lacks."""
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        with imported():
            import triton.language as tl
            from triton.language.extra import libdevice
            from triton.runtime import interpreter

            complete(tl, libdevice, interpreter)
            yield
    finally:
        del os.environ["TRITON_INTERPRET"]


def is_triton(name: str) -> bool:
    return (name == "triton" or name.startswith("triton.")) and not name.startswith("triton._C")


def complete(tl, libdevice, interpreter) -> None:
    from compiler.targets.triton.expressions import LIBDEVICE

    def twin(function):
        def call(*args):
            values = np.broadcast_arrays(*(arg.handle.data if isinstance(arg, tl.tensor) else np.float32(getattr(arg, "value", arg)) for arg in args))
            data = np.asarray(function(*values), dtype=np.float32)
            blocks = any(isinstance(arg, tl.tensor) and arg.type.is_block() for arg in args)
            return tl.tensor(interpreter.TensorHandle(data, tl.float32), tl.block_type(tl.float32, list(data.shape)) if blocks else tl.float32)

        return call

    for name in set(LIBDEVICE.values()):
        setattr(libdevice, name, twin(EXACT.get(name) or special(name)))

    builder = interpreter.InterpreterBuilder
    masked, dot = builder.create_masked_load, builder.create_dot

    def load(self, pointers, mask, other, *rest):
        found = masked(self, pointers, mask, other, *rest)
        if other is None and found.data.dtype.kind == "f":
            found.data = np.where(mask.data, found.data, np.nan).astype(found.data.dtype)
        return found

    def multiply(self, a, b, total, precision, *rest):
        if "TF32" in str(precision).upper():
            a, b = (interpreter.TensorHandle((v.data.view(np.int32) & -0x2000).view(np.float32), v.dtype) for v in (a, b))
        return dot(self, a, b, total, precision, *rest)

    def reduce(self, values):
        """Evaluates our two functions on whole arrays instead of element by element in Python."""
        whole = {"at_least": np.maximum, "at_most": np.minimum}[self.combine_fn.__name__].reduce
        return [self.to_tensor(whole(v.handle.data, axis=self.axis, keepdims=self.keep_dims), v.dtype) for v in values]

    builder.create_masked_load, builder.create_dot = load, multiply
    interpreter.ReduceOps.generic_reduce = reduce
    # Patches the language once: otherwise, the interpreter would do so whenever one function calls another, spending nine tenths of its time on it.
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda function: interpreter._LangPatchScope()
