"""What a model computes of one weight alone (a cast to float32, -exp(A)) is made once, as weights are that kernels read in another layout."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite, prod
from typing import Any

from compiler.graph.averaged import OF_WEIGHTS
from compiler.graph.ir import FLOATS
from compiler.graph.layout import VIEWS
from compiler.graph.rewrites import Specs
from compiler.graph.values import new_node, plain, refs
from verifier.graph import Node

NOTE = "what is computed of weights alone is made once, and anew where weights are loaded or moved"
FUNCTIONS = {"neg": "(-{})", "exp": "torch.exp({})", "log": "torch.log({})", "sigmoid": "torch.sigmoid({})", "tanh": "torch.tanh({})",
             "sqrt": "torch.sqrt({})", "rsqrt": "torch.rsqrt({})", "reciprocal": "torch.reciprocal({})", "abs": "torch.abs({})",
             "relu": "torch.relu({})", "softplus": "torch.nn.functional.softplus({})",
             "log_sigmoid": "torch.nn.functional.logsigmoid({})"}  # fmt: skip
INFIX = {"mul": "*", "add": "+", "sub": "-", "div": "/"}
LEAST = 512  # elements; fewer are computed where they are read


def made_once(nodes: list[Node], specs: Specs, weights: Collection[str], results: Collection[str]) -> tuple[list[Node], list[str]]:
    """Replaces operators on one weight by a tensor that is made once; also what is said of it. What leaves forward stays: a caller may change it."""
    leaving = _leaving(nodes, results)
    code: dict[str, tuple[str, str]] = {}  # value -> the weight, and Python over {0} of its elements
    found, used = [], False
    for node in nodes:
        source = _source(node)
        weight, text = code.get(source, (source, "{0}"))
        more = _computed(node, text, specs) if source in weights or source in code else ""
        if not more or node.name in leaving:
            found.append(node)
        elif node.op in VIEWS:
            code[node.name] = (weight, more)
            found.append(node)
        else:
            code[node.name] = (weight, more)
            found.append(new_node(node, node.name, OF_WEIGHTS, [{"ref": weight}], node.outputs[0], {"code": f"{more}.contiguous()"}))
            used = True
    return found, [NOTE] if used else []


def _source(node: Node) -> str:
    """The only tensor that an operator reads, as its first argument; "" where there are others."""
    first = node.args[0] if node.args else None
    read = list(refs([node.args, list(node.kwargs.values())]))
    return read[0] if len(read) == 1 and len(node.outputs) == 1 and isinstance(first, dict) and first.get("ref") == read[0] else ""


def _computed(node: Node, text: str, specs: Specs) -> str:
    """Python for the operator's result where `text` is that of its argument; "" where it is none that is made once."""
    name, spec, args = node.op.split(".")[1], node.outputs[0], node.args[1:]
    if node.op in VIEWS:
        return _viewed(node, text)
    if not {spec.dtype, specs[node.args[0]["ref"]].dtype} <= FLOATS or prod(spec.shape) < LEAST:
        return ""
    if name == "_to_copy":
        return f"{text}.to(torch.{spec.dtype})"
    if name in FUNCTIONS and not args and not node.kwargs:
        return FUNCTIONS[name].format(text)
    if name in INFIX and len(args) == 1 and not node.kwargs and isinstance(plain(args[0]), (int, float)) and isfinite(plain(args[0])):
        return f"({text} {INFIX[name]} {plain(args[0])!r})"
    return ""


def _viewed(node: Node, text: str) -> str:
    name, shape = node.op.split(".")[1], tuple(node.outputs[0].shape)
    args: list[Any] = [plain(value) for value in node.args[1:]]
    if name in ("view", "_unsafe_view", "reshape"):
        return f"{text}.reshape({shape})"
    if name in ("permute", "transpose", "unsqueeze") and args:
        return f"{text}.{name}({', '.join(map(str, args))})"
    return f"{text}.t()" if name == "t" else ""


def _leaving(nodes: list[Node], results: Collection[str]) -> set[str]:
    """Values that a caller gets, and those whose memory it gets."""
    found = set(results)
    for node in reversed(nodes):
        if node.name in found and node.op in VIEWS:
            found.add(node.args[0]["ref"])
    return found
