"""Helpers for the arguments of operators as stored in the captured graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from verifier.graph import Node
from verifier.task import TensorSpec


def refs(value: Any) -> Iterator[str]:
    """Yields the names of all tensors among an operator's arguments."""
    if isinstance(value, dict):
        if "ref" in value:
            yield value["ref"]
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from refs(item)


def renamed(value: Any, instead: Mapping[str, str]) -> Any:
    """Returns an operator's argument with the names of tensors in `instead` replaced."""
    if isinstance(value, dict):
        return {**value, "ref": instead[value["ref"]]} if value.get("ref") in instead else value
    if isinstance(value, (list, tuple)):
        return [renamed(one, instead) for one in value]
    return value


def plain(value: Any) -> Any:
    """Converts a JSON argument to a Python value: `{"float": "inf"}` becomes the number."""
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    return value


def new_node(origin: Node, name: str, op: str, args: list[Any], spec: TensorSpec, kwargs: dict[str, Any] | None = None) -> Node:
    """Creates a node with one result and with the module and line of `origin`."""
    module, module_class, line = origin.module, origin.module_class, origin.line
    return Node(name=name, op=op, args=args, kwargs=kwargs or {}, outputs=[spec], module=module, module_class=module_class, line=line)
