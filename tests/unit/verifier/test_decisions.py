"""Differences that come from rounding once in many calls are distinguished from those of a program that is wrong in as many places in every call."""

import time
from types import SimpleNamespace

import pytest
import torch

from verifier.correctness.decisions import Decisions, measured, most, off, told_apart
from verifier.correctness.expectation import Expectations
from verifier.judge.session import Run, Values
from verifier.layout import Spec, encode
from verifier.parties.oracle import Rough
from verifier.timing.timed_outputs import TimedOutputs

ROWS = 200


def test_near_ties_are_as_much_rarer_as_errors_are_smaller():
    found = measured([(4.0, 0), (16.0, 0), (64.0, 12), (256.0, 45), (1024.0, 190)])
    assert found == Decisions(12, 12 / 12 / 64)
    assert found.allowed() == 12 * most(4 / 64) == 24 and found.allowed(300) == 12 * most(4 * 300 / 64)
    assert measured([(4.0, 0), (16.0, 0)]) is None


@pytest.mark.parametrize("counts", [[(256.0, 0), (1024.0, 50)], [(64.0, 0), (256.0, 3), (1024.0, 900)]])
def test_errors_that_grow_are_no_decisions(counts):
    assert measured(counts) is None


def test_a_poisson_variable():
    assert [most(mean) for mean in (0.0, 0.001, 0.05, 1.0, 10.0)] == [0, 1, 2, 6, 24]
    assert 2000 < most(2000) < 2200


def test_elements_that_are_off():
    value = torch.arange(8.0)
    assert off(value, value + torch.tensor([0, 0, 5.0, 0, 0, 0, 1e-9, 0]), 1e-6) == 1
    assert off(value.long(), value.long() + torch.tensor([0, 1, 0, 0, 0, 0, 0, 2]), 0.0) == 2
    assert told_apart(3, torch.zeros(100)) == 3 and told_apart(30, torch.zeros(100)) == 0


def test_plain_arithmetic_with_larger_errors():
    x = torch.rand(1000, dtype=torch.float64) + 1

    def error(times: float) -> float:
        with Rough(1, torch.float32, times=times):
            return float((x * 3 / (x * 3).detach() - 1).abs().max())

    assert 20 * error(1.0) < error(64.0) < 200 * error(1.0)


class Nearest:
    """A reference whose only output is the row nearest to a point: errors decide the choice if two rows are about equally near."""

    clock = staticmethod(time.monotonic)

    def __init__(self, gaps: torch.Tensor):
        self.gaps, self.exact, self.limits, self.rolled = gaps, None, SimpleNamespace(oracle=60.0), 0

    def oracle(self, values, rng, rough, times):
        noise = torch.randn(len(self.gaps), generator=torch.Generator().manual_seed(rough)) * 1e-7 * times
        return run(torch.where(self.gaps + noise > 0, 1.0, 2.0))

    def rollback(self):
        self.rolled += 1

    def eager(self, values, rng):
        return run(torch.ones(len(self.gaps)))


def run(tensor: torch.Tensor) -> Run:
    tensors: list[torch.Tensor] = []
    tree = encode(tensor, tensors)
    return Run(Values(tree, [Spec.of(tensor)], tensors), [])


@pytest.fixture
def expectations():
    reference = Nearest(torch.linspace(2e-5, 1.0, ROWS))
    found = Expectations(reference, SimpleNamespace(getrandbits=lambda bits: 7))
    expected = SimpleNamespace(
        oracle=run(torch.ones(ROWS)), values=None, rng=1, before=None, leaves=[SimpleNamespace(limit=1e-6)], appealed=True
    )  # fmt: skip
    found.decisions = found._decisions(expected)
    assert reference.rolled == 1
    return found


def outputs_of(expectations: Expectations) -> TimedOutputs:
    expectations.timed_bounds = lambda appeal=False: ([1e-6], [0.0], [None])
    return TimedOutputs(SimpleNamespace(expectations=expectations), has_rival=False)


def call(value: torch.Tensor) -> SimpleNamespace:
    made = run(value).outputs
    return SimpleNamespace(tree=made.tree, specs=made.specs, outputs=[value], inputs_intact=[], shared=[""], after={})


def test_a_call_in_which_rounding_decides_is_right_and_a_program_that_is_always_wrong_there_is_not(expectations):
    assert expectations.decisions[0] is not None and expectations.decisions[0].rate < 0.1
    timed, right = outputs_of(expectations), torch.ones(ROWS)
    other = right.clone()
    other[0] = 2.0
    assert timed._trial(40, call(other), call(right)).ok
    found = [timed._trial(number, call(other), call(right)).ok for number in range(41, 60)]
    assert not all(found), "once in many calls, not in each"
    many = torch.full((ROWS,), 2.0)
    assert not timed._trial(60, call(many), call(right)).ok


def test_where_rounding_decides_nothing_nothing_may_be_off(expectations):
    expectations.decisions = [None]
    timed, right = outputs_of(expectations), torch.ones(ROWS)
    other = right.clone()
    other[0] = 2.0
    assert not timed._trial(40, call(other), call(right)).ok
