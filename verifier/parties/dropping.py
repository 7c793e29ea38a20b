"""Runs a task in a mode in which clamps drop NaN, as `fmaxf(x, 0)` does. By default, they propagate it, as `torch.relu` does.

In C, `fmaxf` and `fminf` return the operand that is not NaN. A kernel that uses them still implements a valid clamp, so a program's treatment of NaN
is also compared with this interpretation of the task. The same applies to a maximum over a row or a window that skips NaN, as a loop of comparisons
does. Sums and products always propagate NaN.
"""

# sandboxed: its mode is active while the models that tasks define run

from __future__ import annotations

import re
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_LOW = ("relu", "clamp_min", "threshold")
_HIGH = ("clamp_max",)
_BOTH = ("clamp", "hardtanh", "hardsigmoid")
_ORDERS = ("topk", "sort", "argsort", "msort", "kthvalue", "median", "nanmedian", "mode", "unique", "_unique2", "searchsorted", "bucketize")
_PAIRS = ("maximum", "minimum", "fmax", "fmin")
_LEAST = ("amin", "min")
LEVEL = 0.5  # an input for which few functions return NaN
_EXTREMES = re.compile(r"amax|amin|max|min|(adaptive_|fractional_)?max_pool[123]d(_with_indices)?")


class Dropping(TorchDispatchMode):
    """A mode in which clamps return a number for NaN. `how` is "low" or "high": a clamp with two bounds turns NaN into the lower or upper bound.

    With "unordered", clamps are unchanged, and operators that sort or rank numbers return a constant. An output that is NaN even then does not depend
    on an ordering."""

    def __init__(self, how: str):
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.high = how == "high"
        self.unordered = how == "unordered"
        self.orders = False  # whether any operator sorts or ranks numbers, for which the position of NaN is not specified

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False, because nothing is compiled here (see `verifier.parties.oracle.Wide`)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        self.orders = self.orders or name in _ORDERS
        if self.unordered:
            output = func(*args, **kwargs)
            return _levelled(output) if name in _ORDERS else output
        paired = len(args) == 2 and all(isinstance(arg, torch.Tensor) for arg in args)
        if paired and (name in _PAIRS or _EXTREMES.fullmatch(name)):
            a, b = args
            output = func(torch.where(a.isnan(), b, a), torch.where(b.isnan(), a, b), **kwargs)
            return output
        if _EXTREMES.fullmatch(name) and args[0].is_floating_point():
            worst = torch.inf if name in _LEAST else -torch.inf
            return func(torch.where(args[0].isnan(), worst, args[0]), *args[1:], **kwargs)
        if name not in (*_LOW, *_HIGH, *_BOTH) or not args or not isinstance(args[0], torch.Tensor) or not args[0].is_floating_point():
            return func(*args, **kwargs)
        lost = args[0].isnan()
        given = torch.where(lost, self._beyond(name), args[0].detach())
        if func._schema.name.endswith("_"):
            args[0].copy_(given)
            return func(*args, **kwargs)
        return func(given, *args[1:], **kwargs)

    def _beyond(self, name: str) -> float:
        """Returns an infinity that the operator clamps to the intended bound."""
        return torch.inf if name in _HIGH or (name in _BOTH and self.high) else -torch.inf


def _levelled(output: Any) -> Any:
    """Returns an operator's results with every number set to `LEVEL` and every index set to zero."""
    if isinstance(output, torch.Tensor):
        return torch.full_like(output, LEVEL if output.is_floating_point() else 0)
    return type(output)(map(_levelled, output))
