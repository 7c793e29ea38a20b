"""The registry of the operators that kernels compute element by element. `@lowers("aten.div")` marks the function that turns a call of the operator
into scalar operations. Fusion uses the registry to find out which operators a kernel can compute; functions.py lists the names and costs of the
scalar functions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from compiler.graph.ir import in_registers
from compiler.graph.network import plain
from compiler.graph.reductions import short
from compiler.kernel.builder import READ, SUPPORTED, Builder, Refused, tensor_args
from verifier.graph import Node

Emitter = Callable[[Builder, Node], str]  # emits the operations of a node and returns the one that holds its value; raises `Refused`


@dataclass(frozen=True)
class Lowering:
    emit: Emitter
    only: frozenset[str]  # types of the result in registers; empty if the function checks the types itself


LOWERINGS: dict[str, Lowering] = {}  # by operator, without its overload


def lowers(*operators: str, only: Collection[str] = ()) -> Callable[[Emitter], Emitter]:
    """Registers the function for `operators`, such as "aten.div". With `only`, calls whose result has another type in registers are left to
    PyTorch."""

    def register(emit: Emitter) -> Emitter:
        for name in operators:
            if name in LOWERINGS:
                raise ValueError(f"{name} is lowered by {LOWERINGS[name].emit.__name__} and by {emit.__name__}")
            LOWERINGS[name] = Lowering(emit, frozenset(only))
        return emit

    return register


def is_lowered(node: Node) -> bool:
    return operator(node) in LOWERINGS


def lower(builder: Builder, node: Node) -> str:
    """Emits the operations of `node` and returns the operation that holds its value. Raises `Refused` for unsupported forms."""
    read, own = [builder.network.spec(source).dtype for source in tensor_args(node)], builder.network.spec(node.name).dtype
    for dtype in [*(dtype for dtype in read if dtype not in READ), *([own] if own not in SUPPORTED else [])]:
        raise Refused(f"{dtype} is left to PyTorch")
    found = LOWERINGS.get(operator(node))
    if found is None or found.only and result(builder, node) not in found.only:
        raise left(node)
    return found.emit(builder, node)


def operator(node: Node) -> str:
    """Returns the operator with its namespace and without its overload: "aten.div" for aten.div.Tensor."""
    return ".".join(node.op.split(".")[:2])


def left(node: Node) -> Refused:
    return Refused(f"{short(node)} is left to PyTorch")


def result(builder: Builder, node: Node) -> str:
    """Returns the type of the result in registers."""
    return in_registers(builder.network.spec(node.name).dtype)


def argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    """Returns an argument passed by position or by name."""
    return plain(node.kwargs.get(name, node.args[position] if len(node.args) > position else default))
