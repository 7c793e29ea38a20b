"""An input that the task changes, such as a cache that the caller owns, must be changed in the same way by the program, and by baselines."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch

from verifier.correctness.examining import changes_off
from verifier.correctness.expectation import Expected
from verifier.correctness.leaf import Leaf
from verifier.correctness.prepared import Prepared
from verifier.judge.session import Run, Values
from verifier.layout import Spec
from verifier.timing.call import Call

OWN = torch.arange(12.0).view(3, 4)
WANTED = OWN * 1.25


def expected(after: torch.Tensor = WANTED, own: torch.Tensor = OWN) -> Expected:
    output = torch.ones(2)
    given = Values({"l": [{"t": 0}, {"t": 1}]}, [Spec.of(torch.ones(1)), Spec.of(own)], [torch.ones(1), own])
    run = Run(Values({"t": 0}, [Spec.of(output)], [output]), [], changed_inputs=[1], after={1: after})
    return Expected(run, [Leaf(output, output, 0.0, 0.0, 1e-6)], [], given, 1, None)


def call(after: dict[int, torch.Tensor]) -> Call:
    return Call(1, 1, 0, 0, None, [], [], None, [True, not after], after=after)


def test_the_same_change_is_right_within_rounding():
    assert changes_off(call({1: WANTED * (1 + 1e-6)}), expected()) == ""


@pytest.mark.parametrize("after", [{}, {1: torch.zeros(3, 4)}, {1: WANTED * 1.001}])
def test_no_change_and_other_ones_are_wrong(after):
    assert "input 1, which the task changes, is not changed in the same way" in changes_off(call(after), expected())


def test_whole_numbers_change_exactly():
    own = torch.arange(8)
    assert changes_off(call({1: own + 1}), expected(own + 1, own)) == "" and changes_off(call({1: own + 2}), expected(own + 1, own))


def prepared(made: Call, kept: bool) -> Prepared:
    """Returns a prepared task whose baseline makes this call. `kept` is whether the fp64 result of the first trial is kept."""
    first, output = expected(), Spec.of(torch.ones(2))
    of = Prepared.__new__(Prepared)
    of.stochastic, of.lock, of.first_call = False, threading.Lock(), lambda caller: (made, first.values)
    of.reference = SimpleNamespace(
        precision="fp32-strict", rest=lambda need: None, take_state=lambda state: None, state_tensors=[], rollback=lambda: None,
        eager=lambda values, rng: first.run,
    )  # fmt: skip
    of.expectations = SimpleNamespace(
        first_rng=1, first=first if kept else None, recall=lambda values: first, timed_bounds=lambda: ([1e-6], [0.0], [None])
    )
    made.tree, made.specs, made.outputs = {"t": 0}, [output], [torch.ones(2)]
    return of


@pytest.mark.parametrize("kept", [True, False], ids=["beside fp64", "beside eager"])
def test_a_baseline_that_leaves_such_an_input_alone_is_none(kept):
    assert prepared(call({1: WANTED}), kept).baseline_off(None) == ""
    assert "input 1, which the task changes, is not changed in the same way" in prepared(call({}), kept).baseline_off(None)
