"""Copies a model to fp64 without making an fp32 copy first. Later copies reuse the parts that calls do not change."""

# sandboxed: copies the models that tasks define

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from verifier.float8 import continuous
from verifier.parties.oracle import widen

KEPT_BYTES = 4 << 30  # maximum size of all cached fp64 parameters; above it, none are cached, and rebuilding takes milliseconds on a GPU
_PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass
class _Kept:
    """An fp64 copy of a parameter, with the write counters of both tensors, which show whether the copy is still valid."""

    source: torch.nn.Parameter
    address: int
    version: int
    copy: torch.Tensor
    copy_version: int

    def good(self) -> bool:
        source = self.source
        return (source.data_ptr(), source._version, self.copy._version) == (self.address, self.version, self.copy_version)


class WideCopies:
    """The cached fp64 copies of the parameters of one model at a time."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, str], _Kept] = {}

    def clear(self) -> None:
        self.kept.clear()

    def copy(self, model: torch.nn.Module, where: str, mutated: list[str] | None) -> torch.nn.Module:
        """Copies `model` on its devices or entirely to the CPU (`where`). Parameters, buffers and tensors in plain attributes become double
        precision; everything else, including float8 numbers, is copied unchanged. `mutated` holds the names of the state that calls change, or None
        if they are unknown; other entries are copied again only after a write."""
        constant = [] if mutated is None else [value for name, value in model.named_parameters() if name not in mutated]
        keep = {id(value) for value in constant} if 8 * sum(value.numel() for value in constant) <= KEPT_BYTES else set()
        memo: dict[int, Any] = {}
        kept: dict[tuple[int, str], _Kept] = {}
        for module in model.modules():
            tables: list[dict[str, Any]] = [module._parameters, module._buffers, module.__dict__]
            for value in [value for table in tables for value in table.values() if type(value) in _PLAIN]:
                if id(value) in memo:
                    continue
                known = self.kept.get((id(value), where))
                if id(value) in keep and known is not None and known.source is value and known.good():
                    made = known.copy
                elif continuous(value) or (where == "cpu" and value.device.type != where):
                    made = _wide(value, torch.device("cpu") if where == "cpu" else value.device)
                else:
                    continue  # deep copies preserve the sharing of the originals
                memo[id(value)] = made
                if id(value) in keep:
                    kept[id(value), where] = _Kept(value, value.data_ptr(), value._version, made, made._version)
        self.kept = kept
        copied = copy.deepcopy(model, memo)
        for module in copied.modules():
            for value in [value for table in (module._parameters, module._buffers, module.__dict__) for value in table.values()]:
                if isinstance(value, torch.Tensor) and type(value) not in _PLAIN and continuous(value):
                    value.data = widen(value.data)  # a tensor of a custom class
        return copied


def _wide(value: torch.Tensor, where: torch.device) -> torch.Tensor:
    made = widen(value.detach().to(where))
    return torch.nn.Parameter(made, value.requires_grad) if isinstance(value, torch.nn.Parameter) else made
