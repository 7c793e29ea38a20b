"""Counts the rows of each group in a call of a model that routes rows to groups (such as experts), either by its own choices or by offsets among its
inputs. The sizes of a grouped product depend on data, so a graph does not show them."""

# sandboxed: watches calls of the models that tasks define

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from verifier.graph import GroupSizes

MOST_GROUPS = 512  # more candidates than that are a vocabulary or classes, not groups
LEAST_ROWS = 4  # minimum number of rows a group on average
MOST_SOURCES = 4
CHOICES = {"topk": 1, "argmax": 0, "multinomial": 0}  # operators that choose among the last dimension's entries; which of their outputs has indices


class Choosing(TorchDispatchMode):
    """Counts the choices of a call while it is active. If several choices have the same kind and size, such as those of a model's layers, only the
    first is kept."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.found: dict[str, GroupSizes] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in CHOICES and args and isinstance(args[0], torch.Tensor):
            self._note(name, args[0], result[CHOICES[name]] if isinstance(result, (tuple, list)) else result)
        return result

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
