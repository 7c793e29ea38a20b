"""Collects the operators that are written out for a loop, under unique names."""

# sandboxed: writes graphs of the models that tasks define

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verifier.graph import Node
from verifier.parties.capturing.loop_nodes import free_name
from verifier.task import TensorSpec


@dataclass
class Written:
    """The operators that are written out. `known` returns the node that computes a value of the graph so far, or None for an input; `spec` returns
    the spec of a value; `taken` holds the graph's names."""

    known: Callable[[str], Node | None]
    spec: Callable[[str], TensorSpec]
    taken: set[str]
    found: list[Node] = field(default_factory=list)

    def emit(self, origin: Node, op: str, args: list[Any], shape: tuple[int, ...], dtype: str, kwargs: dict[str, Any] | None = None) -> Any:
        name = free_name(f"{op.split('.')[1] if '.' in op else 'item'}_of_rows", self.taken)
        outputs = [TensorSpec(shape=shape, dtype=dtype)]
        self.found.append(origin.model_copy(update={"name": name, "op": op, "args": args, "kwargs": kwargs or {}, "outputs": outputs}))
        return {"ref": name}

    def maker(self, name: str) -> Node | None:
        """Returns the node that computes a value of the whole graph."""
        return next((node for node in self.found if node.name == name), None) or self.known(name)

    def spec_of(self, name: str) -> TensorSpec:
        own = next((node for node in self.found if node.name == name), None)
        return own.outputs[0] if own is not None else self.spec(name)
