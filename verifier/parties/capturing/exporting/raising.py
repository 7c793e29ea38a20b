"""Finds operators whose errors for some tensor values forward catches. A graph cannot go on elsewhere after an error of an operator."""

# sandboxed: reads the sources of the models that tasks define

from __future__ import annotations

import ast
import dis
import linecache
import re
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from verifier.parties.capturing.exporting.unseen import with_inner
from verifier.parties.capturing.reading import frame_file
from verifier.parties.capturing.tracing import PART_FILE

RAISING = ("linalg_", "inverse", "cholesky", "logdet", "multinomial", "bernoulli", "normal", "one_hot", "_assert_async", "_assert_scalar")
# Operators that raise errors for places outside of a tensor, except on a GPU, where such a place ends the process.
PLACING = ("index", "gather", "scatter", "take", "embedding", "put", "nll_loss", "cross_entropy_loss")
# Errors that no operator raises because of the values of tensors.
OTHER_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "KeyError", "NameError", "StopIteration", "OSError",
                          "FileNotFoundError", "NotImplementedError"})  # fmt: skip
CAUGHT = "forward catches errors, and an operator here raises them for some tensor values"


def refuse_caught(exported: torch.export.ExportedProgram, model: torch.nn.Module, forward: Callable[..., Any]) -> None:
    """Raises `ValueError` if an operator may raise an error that the source of `model` catches. `forward` is what was exported."""
    nodes = [node for node in exported.graph.nodes if node.op == "call_function" and may_raise(node)]
    if not nodes:
        return
    code = getattr(getattr(forward, "func", forward), "__code__", None)
    if code is not None and code.co_filename == PART_FILE and catches(code):  # the exporter tells no lines of a part
        raise ValueError(CAUGHT)
    file = frame_file(model)
    lines = caught_lines("".join(linecache.getlines(file)))
    for node in nodes:
        for name, line in re.findall(r'File "([^"]*)", line (\d+)', node.meta.get("stack_trace") or ""):
            if name == file and int(line) in lines:
                raise ValueError(f"line {line}: {CAUGHT}")


def may_raise(node: torch.fx.Node) -> bool:
    name = str(node.target).removeprefix("aten.")
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    on_gpu = isinstance(first, torch.Tensor) and first.device.type == "cuda"
    return name.startswith(RAISING) or name.startswith(PLACING) and not on_gpu


def caught_lines(source: str) -> set[int]:
    """Returns the lines of the statements whose errors a function catches, if an operator may raise them.

    >>> sorted(caught_lines("def f(x):\\n    try:\\n        return x[9]\\n    except IndexError:\\n        return x"))
    [3]
    """
    try:
        tree = ast.parse(source.removeprefix("\ufeff"))
    except SyntaxError:  # a source that was written to no file
        return set()
    tries = [node for node in ast.walk(tree) if isinstance(node, (ast.Try, ast.TryStar)) and any(map(_of_operators, node.handlers))]
    return {line for node in tries for item in node.body for line in range(item.lineno, (item.end_lineno or item.lineno) + 1)}


def _of_operators(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or ast.unparse(kind) not in OTHER_ERRORS for kind in kinds)


def catches(code: CodeType) -> bool:
    """Returns whether a function, or one that it defines, has a `try` with a handler."""
    for one in with_inner(code):
        steps = [step.opname for step in dis.get_instructions(one)]
        if "CHECK_EXC_MATCH" in steps or ("PUSH_EXC_INFO", "POP_TOP") in zip(steps, steps[1:], strict=False):  # `except E:`, or `except:`
            return True
    return False
