"""Determines whether a task chooses 16-bit floating-point types itself.

Under the bf16 and fp16 policies, the model and the inputs are cast, which suits a task that is written in fp32. A task that draws some of its inputs
in bf16 and others in fp32 has chosen the type of each value, and programs written for it follow that choice. Float8 does not count: such values are
never cast, and the values that accompany them follow the policy.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from verifier.source import SourceError, parse

_NARROW = ("bfloat16", "float16")
_MAKERS = ("get_inputs", "get_init_inputs", "__init__")  # what draws the inputs and constructs the model

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=256)
def chooses_types(source: str) -> bool:
    """Returns whether the code that draws the inputs or constructs the model names a 16-bit floating-point type. The types in which `forward`
    computes do not count, because a task may leave fp32 briefly and still be cast."""
    try:
        tree = parse(source)
    except SourceError:
        return False  # such a task is never loaded
    helpers = {node.name: node for node in tree.body if isinstance(node, _Function)}
    made: list[ast.AST] = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    made += [node for node in ast.walk(tree) if isinstance(node, _Function) and node.name in _MAKERS]
    seen: set[str] = set()
    while made:
        for node in ast.walk(made.pop()):
            if _narrow(node):
                return True
            if isinstance(node, ast.Name) and node.id in helpers and node.id not in seen:
                seen.add(node.id)
                made.append(helpers[node.id])
    return False


def _narrow(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "half" and not node.args
    if isinstance(node, ast.Attribute):
        return node.attr in _NARROW or (node.attr == "half" and isinstance(node.value, ast.Name) and node.value.id == "torch")
    return (isinstance(node, ast.Name) and node.id in _NARROW) or (isinstance(node, ast.Constant) and node.value in _NARROW)
