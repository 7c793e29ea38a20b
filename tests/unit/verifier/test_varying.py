"""Constructors under `varying`: fixed values become random, but are the same in two constructors with equal set-up; derived values follow."""

from __future__ import annotations

import torch
import torch.nn as nn

from verifier.parties.initialising import constructed
from verifier.parties.varying import varying


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        nn.init.zeros_(self.linear.bias)
        self.gate = nn.Parameter(torch.zeros(4))
        self.other = nn.Parameter(torch.zeros(4))
        self.scale = nn.Parameter(1e-6 * torch.ones(4))
        self.turned = nn.Parameter(torch.empty(3, 3))
        nn.init.eye_(self.turned)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("rotation", torch.eye(3))
        self.register_buffer("mask", torch.tril(torch.ones(3, 3)))
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.rates = nn.Parameter(torch.log(torch.arange(1.0, 4.0)))
        self.kept = self.gate.detach() * 2
        self.derived = nn.Parameter(self.linear.bias.detach() + 1)
        self.linear.weight.data[:2].fill_(1.0)


class Renamed(nn.Module):
    """Has the same weights in the same order, under different names and without the library's modules."""

    def __init__(self):
        super().__init__()
        nn.Linear(4, 4)
        self.b = nn.Parameter(torch.zeros(4))
        self.g = nn.Parameter(torch.zeros(4))


def made(seed: int, of: type[nn.Module] = Gated) -> nn.Module:
    return constructed(of, "cpu", lambda: torch.manual_seed(5), vary=seed)


def test_fixed_values_are_random_and_the_same_for_one_seed():
    one, same, other = (made(seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    stay = {name for name in one if torch.equal(one[name], other[name])}
    assert stay == {"mask", "norm.num_batches_tracked"}
    assert not torch.equal(one["gate"], one["other"]) and float(one["scale"].abs().max()) > 1e-2
    assert bool((one["norm.running_var"] > 0).all())


def test_what_is_derived_follows():
    model = made(1)
    assert torch.equal(model.kept, model.gate.detach() * 2) and torch.equal(model.derived.detach(), model.linear.bias.detach() + 1)
    assert torch.equal(model.table, torch.arange(4.0))


def test_equal_weights_in_the_same_order_get_the_same_values():
    task, program = made(7), made(7, Renamed)
    assert torch.equal(task.linear.bias, program.b) and torch.equal(task.gate, program.g)


def test_nothing_stays_behind():
    before = nn.Module.register_buffer
    with varying(1):
        pass
    assert nn.Module.register_buffer is before
    assert not bool(nn.Parameter(torch.zeros(3)).any()) and bool((nn.BatchNorm1d(2).weight == 1).all())
