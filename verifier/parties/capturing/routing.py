"""Answers the queries of a loop over experts about a mask of rows (where it is true, and whether it is true anywhere) during an export, without
reading values.

As a result, a pass has a fixed number of rows, regardless of the routing: one for each position of the mask, since a row could be routed to the
expert there.
"""

# sandboxed: answers for tensors of the models that tasks define

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

SPACE = "stitch_routing"
PLACE = f"{SPACE}.place.default"
FEW = 3  # number of rows
MOST_QUERIES = 64  # of a pass; a loop within it that ends when no row is left would not end, because every query finds rows
FINDS = frozenset({torch.nonzero, torch.Tensor.nonzero, torch.argwhere, torch.Tensor.argwhere})
COUNTS = frozenset({torch.any, torch.Tensor.any, torch.sum, torch.Tensor.sum, torch.count_nonzero, torch.Tensor.count_nonzero})


class Presence:
    """The number of true elements in a mask, which is known only to be positive. It supports only comparisons with zero."""

    def item(self) -> Presence:
        return self

    def __bool__(self) -> bool:
        return True

    def _zero(self, other: object) -> None:
        if type(other) is not int or other != 0:
            raise TypeError("the number of an expert's rows is used for more than skipping a pass without rows")

    def __eq__(self, other: object) -> bool:
        self._zero(other)
        return False

    def __ne__(self, other: object) -> bool:
        self._zero(other)
        return True

    def __gt__(self, other: object) -> bool:
        self._zero(other)
        return True

    def __le__(self, other: object) -> bool:
        self._zero(other)
        return False

    def __ge__(self, other: object) -> bool:
        return self > (other - 1 if type(other) is int else other)

    def __lt__(self, other: object) -> bool:
        return self <= (other - 1 if type(other) is int else other)

    __hash__ = None  # type: ignore[assignment]  # how Python marks what has no hash


class Counts(list[Presence]):
    """The number of rows per expert, in place of a list, an array or a tensor of numbers."""

    def tolist(self) -> list[Presence]:
        return list(self)

    def cpu(self) -> Counts:
        return self

    def numpy(self) -> Counts:
        return self


class Routing(TorchFunctionMode):
    """Answers queries about masks during an export. With `few`, a pass has few rows instead of one for each mask element, so that two exports of the
    pass differ. `asked` lists the masks for which the pass checked whether any element is true."""

    def __init__(self, few: bool):
        super().__init__()
        place_operator()
        self.few = few
        self.asked: list[torch.Tensor] = []
        self.queries = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.where and len(args) == 1 and not kwargs:
            return self.places(args[0])
        if func in FINDS and len(args) == 1 and set(kwargs) <= {"as_tuple"}:
            found = self.places(args[0])
            return found if kwargs.get("as_tuple") else torch.stack(found, 1)
        if func in COUNTS and len(args) == 1 and not kwargs and is_mask(args[0]):
            self._count()
            self.asked.append(args[0])
            return Presence()
        if func is torch.Tensor.__getitem__:
            return func(args[0], self.index(args[1]))
        if func is torch.Tensor.__setitem__:
            return func(args[0], self.index(args[1]), args[2])
        return func(*args, **kwargs)

    def _count(self) -> None:
        self.queries += 1
        if self.queries > MOST_QUERIES:
            raise ValueError("a pass selects rows in a loop of its own")

    def places(self, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the indices of the true elements along each axis."""
        self._count()
        operator: Any = getattr(torch.ops, SPACE).place
        rows = mask.numel()
        if self.few:
            rows = FEW if rows > 2 * FEW else rows + 2 * FEW
        return tuple(operator.default(mask, axis, rows) for axis in range(mask.dim()))

    def index(self, index: Any) -> Any:
        """Returns an index in which each mask is replaced by the positions at which it is true."""
        parts = index if isinstance(index, tuple) else (index,)
        if not any(is_mask(part) for part in parts):
            return index
        return tuple(place for part in parts for place in (self.places(part) if is_mask(part) else (part,)))


def is_mask(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool and value.dim() > 0


@functools.cache
def place_operator() -> torch.library.Library:
    """Defines the operator through which an exported pass obtains the true positions of a mask."""
    library = torch.library.Library(SPACE, "FRAGMENT")
    library.define("place(Tensor mask, int axis, int rows) -> Tensor")
    torch.library.register_fake(f"{SPACE}::place", _empty, lib=library)
    return library


def _empty(mask: torch.Tensor, axis: int, rows: int) -> torch.Tensor:
    return mask.new_empty((rows,), dtype=torch.int64)


class Number(int):
    """The number of an expert that a loop reads from a tensor."""

    def item(self) -> int:
        return int(self)

    def __getitem__(self, at: Any) -> Number:
        if at not in (0, -1):
            raise IndexError("a number must have one element")
        return self
