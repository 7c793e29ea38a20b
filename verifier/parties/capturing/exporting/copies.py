"""Traces `copy.copy` and `copy.deepcopy` of tensors. Python copies an object's memory, which an exporter's tensors do not have."""

# sandboxed: traces the models that tasks define

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterator
from typing import Any

import torch

from verifier.parties.capturing.exporting.types_told import EXPORTERS
from verifier.parties.capturing.reading import frame_file
from verifier.parties.capturing.tracing import PART_FILE

OWN = (copy.__file__, __file__)


@contextlib.contextmanager
def copies_traced(model: torch.nn.Module) -> Iterator[None]:
    """Makes a shallow copy in the source of `model` another tensor with the same memory, and a deep copy a clone, as in a plain call."""
    files = {frame_file(model), PART_FILE}
    plainly: Any = torch.Tensor.__deepcopy__

    def asked() -> bool:
        """Returns whether the source asked for the copy, perhaps of a list or of a module that holds the tensor."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename in OWN and frame.f_back is not None:
            frame = frame.f_back
        return frame.f_code.co_filename in files

    def shallow(tensor: torch.Tensor) -> Any:
        if not asked():
            return copy._reconstruct(tensor, None, *tensor.__reduce_ex__(4))  # type: ignore[attr-defined]  # what `copy.copy` does
        return _as_parameter(tensor.detach(), tensor)

    def deep(tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
        if not asked():
            return plainly(tensor, memo)
        if id(tensor) not in memo:
            memo[id(tensor)] = _as_parameter(tensor.clone(), tensor)
        return memo[id(tensor)]

    for kind in EXPORTERS:
        kind.__copy__, kind.__deepcopy__ = shallow, deep
    try:
        yield
    finally:
        for kind in EXPORTERS:
            del kind.__copy__, kind.__deepcopy__


def _as_parameter(made: torch.Tensor, tensor: Any) -> torch.Tensor:
    if isinstance(tensor, torch.nn.Parameter):
        made._is_param = True  # how PyTorch marks an exporter's parameters
    return made
