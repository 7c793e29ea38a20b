"""Classes that replace Python's own while a model is exported, when numbers may be an exporter's symbols."""

# sandboxed: answers the models that tasks define

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import torch

STANDS_FOR: dict[type, Any] = {torch.SymFloat: 0.0, torch.SymInt: 0, torch.SymBool: False}  # an exporter's number -> a number of its Python type


class StandIn(type):
    """Responds to `isinstance`, `issubclass` and `==` like the type that it replaces."""

    stands_for: type

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(STANDS_FOR.get(builtins.type(value), value), cls.stands_for)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.stands_for)

    def __eq__(cls, other: object) -> bool:
        return other is cls.stands_for or type.__eq__(cls, other) is True

    def __hash__(cls) -> int:
        return hash(cls.stands_for)


def stand_in(kind: type, make: Callable[..., Any]) -> type:
    """Returns a class that responds like `kind`, and that calls `make` with its arguments."""
    return StandIn(kind.__name__, (), {"stands_for": kind, "__new__": lambda cls, *args, **kwargs: make(*args, **kwargs)})
