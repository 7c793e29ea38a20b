"""A graph that computes something other than forward is refused, unless rounding or random numbers explain the difference."""

import pytest
import torch
import torch.nn as nn

from verifier.parties.capturing.agreeing import Disagrees, compare
from verifier.parties.capturing.calling import FlatCall
from verifier.parties.capturing.exporting.export import export
from verifier.parties.plain_state import PlainState


class Counting(nn.Module):
    """Computes something that the tests replace between the export and the comparison."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.compute = torch.sin

    def forward(self, x):
        self.seen.add_(x.mean(0))
        return self.compute(x)


def compared(exported, computed):
    model, x = Counting(), torch.linspace(-1, 1, 32).view(8, 4)
    model.compute = exported
    with torch.no_grad():
        call = FlatCall(model.forward, (x,), {})
        program = export(model, call)
        model.compute = computed
        compare(program, call, model, PlainState(model))
    assert float(model.seen.abs().sum()) == 0 and torch.equal(x, torch.linspace(-1, 1, 32).view(8, 4)), "the comparison leaves everything as it was"


def enlarged(x):
    for _ in range(60):
        x = 3.9 * x.abs() * (1 - x.abs())
    return x


def enlarged_otherwise(x):
    for _ in range(60):
        x = 3.9 * (x.abs() - x * x)
    return x


SAME = {
    "the same": (torch.sin, torch.sin),
    "rounding": (lambda x: (x * 3).sum(0), lambda x: x.sum(0) * 3),
    "rounding that the model enlarges": (enlarged, enlarged_otherwise),
    "random numbers": (torch.rand_like, torch.rand_like),
    "an error": (torch.sin, lambda x: x.reshape(5)),
}
OTHER = {
    "values": (torch.sin, torch.cos, "result 1 has other values"),
    "a type": (torch.sin, lambda x: x.sin().double(), r"result 1 is float32\[8, 4\] instead of float64"),
    "a size": (torch.sin, lambda x: x.sin()[:2], r"float32\[2, 4\]"),
    "an argument": (torch.sin, lambda x: x.zero_().cos() - 1 + torch.linspace(-1, 1, 32).view(8, 4).sin(), "argument 1 has other values"),
    "a number": (lambda x: (x.sin(), 3), lambda x: (x.sin(), 4), "results that are no tensors"),
}


@pytest.mark.parametrize("kind", SAME)
def test_what_is_computed_alike_agrees(kind):
    compared(*SAME[kind])


@pytest.mark.parametrize("kind", OTHER)
def test_what_is_computed_otherwise_is_told(kind):
    exported, computed, why = OTHER[kind]
    with pytest.raises(Disagrees, match=why):
        compared(exported, computed)


def test_state_that_a_graph_leaves_otherwise_is_told():
    with pytest.raises(Disagrees, match="the state `seen` has other values"):
        model = Counting()
        x = torch.rand(8, 4) + 1
        with torch.no_grad():
            call = FlatCall(model.forward, (x,), {})
            program = export(model, call)
            model.forward = lambda x: x.sin()
            compare(program, FlatCall(model.forward, (x,), {}, results=[{"out": 0}]), model, PlainState(model))
