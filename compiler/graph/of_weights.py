"""Values that are computed from a single weight (a cast to float32, -exp(A)), and stacks of weights. They are computed once, like weights that are
packed for kernels."""

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
COMPLEX = "aten.view_as_complex.default"
LEAST = 512  # minimum number of elements; smaller values are computed where they are read


def made_once(nodes: list[Node], specs: Specs, weights: Collection[str], results: Collection[str]) -> tuple[list[Node], list[str]]:
    """Replaces operators on a single weight, and stacks of weights, with tensors that are computed once. Also returns notes for the plan. Excludes
    values that forward returns, because a caller may modify them."""
    leaving = _leaving(nodes, results)
    code: dict[str, tuple[str, str]] = {}  # value -> (the weight, Python code in which {0} is the weight)
    found, used = [], False
    for node in nodes:
        turned, node = _turned(node, code, specs)
        found += turned
        used |= bool(turned)
        if (stacked := _stacked(node, weights)) and node.name not in leaving:
            found.append(new_node(node, node.name, OF_WEIGHTS, [{"ref": name} for name in stacked], node.outputs[0], {"code": _stack(len(stacked))}))
            used = True
            continue
        source = _source(node)
        weight, text = code.get(source, (source, "{0}"))
        more = _computed(node, text, specs) if source in weights or source in code else ""
        if not more or node.name in leaving:
            found.append(node)
        elif node.op in VIEWS or node.op == COMPLEX:
            code[node.name] = (weight, more)
            found.append(node)
        else:
            code[node.name] = (weight, more)
            found.append(new_node(node, node.name, OF_WEIGHTS, [{"ref": weight}], node.outputs[0], {"code": f"{more}.contiguous()"}))
            used = True
    return found, [NOTE] if used else []


def _stacked(node: Node, weights: Collection[str]) -> list[str]:
    """Returns the weights that a stack operator combines, or an empty list if it also takes other values."""
    if node.op != "aten.stack.default" or len(node.args) > 1 or node.kwargs:
        return []
    read = list(refs(node.args))
    return read if len(read) == len(node.args[0]) and all(name in weights for name in read) else []


def _stack(count: int) -> str:
    return f"torch.stack([{', '.join(f'{{{at}}}' for at in range(count))}])"


def _source(node: Node) -> str:
    """Returns the only tensor that an operator reads if it is the first argument, otherwise ""."""
    first = node.args[0] if node.args else None
    read = list(refs([node.args, list(node.kwargs.values())]))
    return read[0] if len(read) == 1 and len(node.outputs) == 1 and isinstance(first, dict) and first.get("ref") == read[0] else ""


def _computed(node: Node, text: str, specs: Specs) -> str:
    """Returns Python code for the operator's result, where `text` is the code of its argument, or "" if the operator cannot be computed once."""
    name, spec, args = node.op.split(".")[1], node.outputs[0], node.args[1:]
    if node.op in VIEWS:
        return _viewed(node, text)
    if node.op == COMPLEX:
        return f"torch.view_as_complex({text}.contiguous())"
    if not {spec.dtype, specs[node.args[0]["ref"]].dtype} <= FLOATS or prod(spec.shape) < LEAST:
        return ""
    if name == "_to_copy":
        return f"{text}.to(torch.{spec.dtype})"
    if name in FUNCTIONS and not args and not node.kwargs:
        return FUNCTIONS[name].format(text)
    if name in INFIX and len(args) == 1 and not node.kwargs and isinstance(plain(args[0]), (int, float)) and isfinite(plain(args[0])):
        return f"({text} {INFIX[name]} {plain(args[0])!r})"
    return ""


def _turned(node: Node, code: dict[str, tuple[str, str]], specs: Specs) -> tuple[list[Node], Node]:
    """Replaces permuted complex weights of a product with tensors stored in the permuted order. Otherwise, the library would permute them in every
    call. Returns the new nodes and the changed product."""
    made: list[Node] = []
    if node.op != "aten.matmul.default":
        return made, node
    args = list(node.args)
    for at, one in enumerate(args):
        weight, text = code.get(one["ref"], ("", ""))
        if "view_as_complex" in text and ("permute" in text or "transpose" in text):
            made.append(new_node(node, f"{node.name}_weights", OF_WEIGHTS, [{"ref": weight}], specs[one["ref"]], {"code": f"{text}.contiguous()"}))
            args[at] = {"ref": made[-1].name}
    return made, node.model_copy(update={"args": args}) if made else node


def _viewed(node: Node, text: str) -> str:
    name, shape = node.op.split(".")[1], tuple(node.outputs[0].shape)
    args: list[Any] = [plain(value) for value in node.args[1:]]
    if name in ("view", "_unsafe_view", "reshape"):
        return f"{text}.reshape({shape})"
    if name in ("permute", "transpose", "unsqueeze") and args:
        return f"{text}.{name}({', '.join(map(str, args))})"
    return f"{text}.t()" if name == "t" else ""


def _leaving(nodes: list[Node], results: Collection[str]) -> set[str]:
    """Returns the values that a caller receives and all values that share memory with them."""
    found = set(results)
    for node in reversed(nodes):
        if node.name in found and node.op in VIEWS:
            found.add(node.args[0]["ref"])
    return found
