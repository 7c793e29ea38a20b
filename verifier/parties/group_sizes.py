"""Counts how many rows each group gets in a call of a model that routes rows to groups (to experts, for example), by its choices or by offsets among
its inputs, and how many rows it adds up at each key (the edges of a node, for example). These numbers depend on data, so a graph does not show
them."""

# sandboxed: watches calls of the models that tasks define

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from verifier.graph import GroupSizes, KeyRows

MOST_GROUPS = 512  # more candidates than that are a vocabulary or classes, not groups
LEAST_ROWS = 4  # minimum number of rows a group on average
MOST_SOURCES = 4  # that are told of each kind
MOST_KEYED = 16  # numbers of rows and keys that are looked at
KEYED = ("index_add", "index_reduce", "scatter_add", "scatter_reduce")  # operators whose arguments are result, dimension, keys and rows
CHOICES = {"topk": 1, "argmax": 0, "multinomial": 0}  # operators that choose among the last dimension's entries; which of their outputs has indices


class Choosing(TorchDispatchMode):
    """Counts the choices and the rows by key of a call while it is active. Those that agree in kind and size, such as those of a model's layers, are
    kept once, as the first of them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.found: dict[str, GroupSizes] = {}
        self.keyed: dict[tuple[int, int], KeyRows | None] = {}  # by the numbers of rows and keys; null: every key has equally many rows

    @property
    def key_rows(self) -> list[KeyRows]:
        return [rows for rows in self.keyed.values() if rows is not None][:MOST_SOURCES]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in CHOICES and args and isinstance(args[0], torch.Tensor):
            self._note(name, args[0], result[CHOICES[name]] if isinstance(result, (tuple, list)) else result)
        if name.removesuffix("_") in KEYED and len(args) > 2 and isinstance(args[2], torch.Tensor):
            self._note_keys(name.removesuffix("_"), args[0], args[1], args[2])
        return result

    def _note_keys(self, name: str, result: torch.Tensor, dimension: int, index: torch.Tensor) -> None:
        """Notes the rows by key unless every key gets equally many, or at most one, as where rows are put in their places."""
        if not isinstance(dimension, int) or not index.numel() or not result.dim():
            return
        rows, keys = index.shape[dimension] if index.dim() > 1 else index.numel(), result.shape[dimension]
        if (rows, keys) in self.keyed or len(self.keyed) == MOST_KEYED:
            return
        if index.dim() > 1:  # the same keys for each element of a row, or none that a row has
            rest = index.movedim(dimension, 0).flatten(1)
            if not bool((rest == rest[:, :1]).all()):
                return
            index = rest[:, 0]
        if int(index.min()) < 0:
            return
        counts = torch.bincount(index, minlength=keys)
        even = int(counts.max()) <= max(int(counts.min()), 1)
        self.keyed[rows, keys] = None if even else KeyRows(
            source=f"{name} of {rows:,} rows at {keys:,} keys", median=float(counts.median()), most=int(counts.max()),
            empty=int((counts == 0).sum()),
        )  # fmt: skip

    def _note(self, name: str, scores: torch.Tensor, picked: torch.Tensor) -> None:
        groups = scores.shape[-1] if scores.dim() else 0
        rows = scores.numel() // max(groups, 1)
        if not 2 <= groups <= MOST_GROUPS or picked.numel() < LEAST_ROWS * groups or rows == 0 or picked.numel() % rows:
            return
        said = f"{name}, {picked.numel() // rows} of {groups} for each of {rows:,} rows"
        if said not in self.found and len(self.found) < MOST_SOURCES and bool(((picked >= 0) & (picked < groups)).all()):
            self.found[said] = GroupSizes(source=said, rows=torch.bincount(picked.flatten(), minlength=groups).tolist())


def offsets_among(inputs: list[Any]) -> list[GroupSizes]:
    """Returns the sizes of the parts that inputs delimit. Such inputs are vectors of integers that ascend from zero in steps other than one."""
    found = []
    for number, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor) or value.dtype not in (torch.int32, torch.int64) or value.dim() != 1:
            continue
        if not 3 <= value.numel() <= MOST_GROUPS + 1 or int(value[0]) != 0:
            continue
        steps = value.diff()
        if bool((steps >= 0).all()) and not bool((steps == 1).all()):
            found.append(GroupSizes(source=f"offsets in input {number}", rows=steps.tolist()))
    return found[:MOST_SOURCES]
