"""The operators that replace loops while a forward is exported, and the names of the operators that are later written out for them."""

# sandboxed: reads the models that tasks define

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from verifier.graph import Node
from verifier.task import TensorSpec

SPACE = "stitch_capture"
numbers = itertools.count(1)


class Unlike(ValueError):
    """Raised when the other passes of a loop cannot be inferred from two of them."""


class LoopRefused(ValueError):
    """Raised when only the whole graph shows that a loop is unsuitable. `place` is the loop's file and line."""

    def __init__(self, message: str, place: tuple[str, int]):
        super().__init__(message)
        self.place = place


def at_pass(one: Any, other: Any, steps: int) -> Any:
    """Extrapolates an argument that is `one` in some pass and `other` in the next: returns its value `steps` passes after the first of the two."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [at_pass(a, b, steps) for a, b in zip(one, other, strict=True)]
    if one == other:
        return one
    if type(one) is int and type(other) is int:
        return one + steps * (other - one)
    raise Unlike("its passes differ by more than an index")


def refs(value: Any) -> Iterator[str]:
    """Yields the names of the values among an operator's arguments."""
    if isinstance(value, dict) and "ref" in value:
        yield value["ref"]
    elif isinstance(value, list):
        for item in value:
            yield from refs(item)


def reads(node: Node) -> list[str]:
    return list(refs([node.args, list(node.kwargs.values())]))


def renamed(value: Any, names: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return names.get(value["ref"], value) if "ref" in value else value
    return [renamed(item, names) for item in value] if isinstance(value, list) else value


def free_name(name: str, taken: set[str]) -> str:
    found = next(text for text in itertools.chain([name], (f"{name}_of_{n}" for n in itertools.count(2))) if text not in taken)
    taken.add(found)
    return found


def state_of(model: torch.nn.Module, target: str) -> torch.Tensor:
    owner: Any = model
    for part in target.split("."):
        owner = getattr(owner, part)
    found: torch.Tensor = owner
    return found


def empty_results(specs: list[TensorSpec], values: list[torch.Tensor]) -> list[torch.Tensor]:
    device = values[0].device if values else None
    found = []
    for spec in specs:
        dtype = getattr(torch, spec.dtype)
        if spec.stride is None:
            found.append(torch.empty(spec.shape, dtype=dtype, device=device))
        else:
            found.append(torch.empty_strided(spec.shape, spec.stride, dtype=dtype, device=device))
    return found
