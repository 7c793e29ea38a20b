"""Arguments of operators as the captured graph holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verifier.graph import Node
from verifier.task import TensorSpec


def refs(value: Any) -> Iterator[str]:
    """Names of the tensors among an operator's arguments."""
    if isinstance(value, dict):
        if "ref" in value:
            yield value["ref"]
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from refs(item)


def plain(value: Any) -> Any:
    """A JSON argument as a Python value: `{"float": "inf"}` becomes the number."""
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    return value


def new_node(origin: Node, name: str, op: str, args: list[Any], spec: TensorSpec, kwargs: dict[str, Any] | None = None) -> Node:
    """A node of one result that comes from the same module and line as `origin`."""
    module, module_class, line = origin.module, origin.module_class, origin.line
    return Node(name=name, op=op, args=args, kwargs=kwargs or {}, outputs=[spec], module=module, module_class=module_class, line=line)
