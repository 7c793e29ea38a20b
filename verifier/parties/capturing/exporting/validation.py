"""Captures the checks that torch.distributions performs on arguments and samples. They branch on tensor values, which an export cannot follow; in the
graph, they become assertions, which are checked in every call."""

# sandboxed: watches distributions of the models that tasks define

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch.distributions import constraints, distribution


@contextlib.contextmanager
def validated_on_device() -> Iterator[None]:
    """Turns the checks into assertions while the context is open. Programs raise `RuntimeError` where the model raises `ValueError`."""
    places: list[tuple[Any, str, Any]] = [(torch, "_is_all_true", _all_true(torch._is_all_true))]
    for kind, check in (
        (constraints._Symmetric, symmetric),
        (constraints._PositiveSemidefinite, semidefinite),
        (constraints._PositiveDefinite, definite),
    ):
        places.append((kind, "check", check))
    before = [getattr(owner, name) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(places, before, strict=True):
            setattr(owner, name, value)


def _all_true(before: Any) -> Any:
    def all_true(valid: torch.Tensor) -> Any:
        frame = sys._getframe(1)
        if frame.f_code.co_filename != distribution.__file__:
            return before(valid)
        torch._assert_async(valid.all(), _told(frame))
        return True

    return all_true


def _told(frame: FrameType) -> str:
    """Describes the check that a method of a distribution performs."""
    held = frame.f_locals
    if "param" in held:
        return f"Expected parameter {held['param']} of distribution {type(held['self']).__name__} to satisfy the constraint {held['constraint']!r}"
    return f"Expected value argument to be within the support ({held.get('support')!r}) of the distribution {type(held['self']).__name__}"


# The checks for matrix constraints, without branches between the conditions.


def symmetric(self: Any, value: torch.Tensor) -> torch.Tensor:
    if value.shape[-2] != value.shape[-1]:
        return torch.full(value.shape[:-2], False, device=value.device)
    return torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


def semidefinite(self: Any, value: torch.Tensor) -> torch.Tensor:
    valid: torch.Tensor = symmetric(self, value) & torch.linalg.eigvalsh(value).ge(0).all(-1)
    return valid


def definite(self: Any, value: torch.Tensor) -> torch.Tensor:
    valid: torch.Tensor = symmetric(self, value) & torch.linalg.cholesky_ex(value).info.eq(0)
    return valid
