"""Traces `copy.copy` and `copy.deepcopy` of tensors. Python copies an object's memory, which an exporter's tensors do not have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor


@contextlib.contextmanager
def copies_traced() -> Iterator[None]:
    """Makes a shallow copy of an exporter's tensor another tensor with the same memory, and a deep copy a clone, as in a plain call."""
    kind: Any = FunctionalTensor
    kind.__copy__, kind.__deepcopy__ = _shallow, _deep
    try:
        yield
    finally:
        del kind.__copy__, kind.__deepcopy__


def _shallow(tensor: torch.Tensor) -> torch.Tensor:
    return _as_parameter(tensor.detach(), tensor)


def _deep(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    if id(tensor) not in memo:
        memo[id(tensor)] = _as_parameter(tensor.clone(), tensor)
    made: torch.Tensor = memo[id(tensor)]
    return made


def _as_parameter(made: torch.Tensor, tensor: Any) -> torch.Tensor:
    if isinstance(tensor, torch.nn.Parameter):
        made._is_param = True  # type: ignore[attr-defined]  # how PyTorch marks an exporter's parameters
    return made
