"""Counts the operations of a call: those that torch's counter finds, plus those of recurrent layers, which it misses if the library runs a layer as
one operator."""

# sandboxed: calls the models that tasks define

from __future__ import annotations

import contextlib
import copy
from typing import Any

import torch

GATES = {"LSTM": 4, "GRU": 3}


def count_flops(model: torch.nn.Module, inputs: list[Any], watching: contextlib.AbstractContextManager[Any] | None = None) -> int | None:
    """Counts the operations of matrix products, convolutions, attention and recurrent layers in one call, which runs within `watching` as well. A
    multiply-add counts as two operations. Returns None if a copy of the model cannot be run."""
    from torch.utils.flop_counter import FlopCounterMode

    try:
        twin = copy.deepcopy(model)  # forward may change running statistics
        with torch.no_grad(), watching or contextlib.nullcontext(), FlopCounterMode(display=False) as counter:
            missed = Missed(twin, counter)
            twin(*copy.deepcopy(inputs))
        return int(counter.get_total_flops()) + missed.flops
    except Exception:  # a copy of an untrusted model may raise anything
        return None


class Missed:
    """Operations of recurrent layers in addition to those that a counter found while the layers ran."""

    def __init__(self, model: torch.nn.Module, counter: Any):
        self.flops = 0
        self._counter = counter
        self._before: list[int] = []
        for module in model.modules():
            if isinstance(module, torch.nn.RNNBase):
                module.register_forward_pre_hook(self._begin)
                module.register_forward_hook(self._end)

    def _begin(self, module: torch.nn.Module, given: tuple[Any, ...]) -> None:
        self._before.append(int(self._counter.get_total_flops()))

    def _end(self, module: torch.nn.RNNBase, given: tuple[Any, ...], returned: Any) -> None:
        seen = int(self._counter.get_total_flops()) - self._before.pop()
        self.flops += max(recurrent_flops(module, given[0]) - seen, 0)


def recurrent_flops(layer: torch.nn.RNNBase, given: Any) -> int:
    """Returns the number of operations in the products of all steps, for an input with the axes steps, batch and width in any order, or packed."""
    rows = given.data.shape[0] if isinstance(given, torch.nn.utils.rnn.PackedSequence) else given.numel() // max(layer.input_size, 1)
    ways, out = 2 if layer.bidirectional else 1, layer.proj_size or layer.hidden_size
    total = 0
    for number in range(layer.num_layers):
        width = layer.input_size if number == 0 else out * ways
        gates = GATES.get(layer.mode, 1) * layer.hidden_size * (width + out)
        total += ways * 2 * (gates + layer.proj_size * layer.hidden_size)
    return rows * total
