"""A few elements may be off because a choice between near equals was made differently; elsewhere, none may."""

import random
from types import SimpleNamespace

import torch

from verifier.correctness.expectation import Expectations, Expected
from verifier.correctness.leaf import Leaf
from verifier.judge.session import Run, Values
from verifier.layout import Spec
from verifier.parties.oracle import Rough, Wide

ROWS, WIDTH, TIED, APART = 64, 32, 5, 6
LIMIT = 1e-5


class Router:
    """A stand-in for a session: each row takes the larger of two scores' experts. In row `TIED`, the scores differ by less than a rounding error."""

    def __init__(self) -> None:
        self.exact = None
        self.limits = SimpleNamespace(oracle=60.0)
        self.values = Values({"l": []}, [], [])
        generator = torch.Generator().manual_seed(1)
        self.scores = torch.rand(ROWS, 2, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 0.5], dtype=torch.float64)
        self.scores[:, 0] += 1.0
        self.scores[TIED] = torch.tensor([0.7, 0.7 + 1e-9], dtype=torch.float64)
        self.experts = torch.randn(2, WIDTH, generator=generator, dtype=torch.float64)

    def oracle(self, values, rng, rough=None, times=1.0):
        with Wide() if rough is None else Rough(rough, torch.float32, times=times):
            made = self.experts[(self.scores * 1.0).argmax(1)]
        return Run(Values({"t": 0}, [Spec.of(made)], [made]), [])

    def eager(self, values, rng):
        return self.oracle(values, rng)

    def clock(self):
        return 0.0

    def rollback(self):
        pass


def tried(row: int) -> tuple[bool, str, torch.Tensor, Leaf]:
    """Returns whether an output in which `row` has the other expert's values is allowed, and what the finer comparison says."""
    model = Router()
    oracle = model.oracle(model.values, 0)
    (exact,) = oracle.outputs.tensors
    leaf = Leaf(exact, exact.float(), 0.0, 0.0, LIMIT)
    expected = Expected(oracle, [leaf], [], model.values, 0, oracle)
    value = exact.float().clone()
    value[row] = model.experts[0 if torch.equal(exact[row], model.experts[1]) else 1].float()
    assert expected.in_reach(2.0, [value])
    Expectations(model, random.Random(1)).near_ties(expected, [value])
    off = float(((value - exact).abs() > 1e-3).double().mean())
    return off <= leaf.tolerated, leaf.finer(value, "fp32-strict"), value, leaf


def test_a_choice_between_near_equals_may_be_made_differently():
    allowed, said, _, leaf = tried(TIED)
    assert allowed and not said
    assert leaf.tolerated == 1 / ROWS


def test_a_row_whose_choice_is_clear_is_wrong():
    allowed, _, _, leaf = tried(APART)
    assert not allowed and leaf.tolerated == 0


def test_many_wrong_elements_are_not_looked_into():
    model = Router()
    oracle = model.oracle(model.values, 0)
    (exact,) = oracle.outputs.tensors
    expected = Expected(oracle, [Leaf(exact, exact.float(), 0.0, 0.0, LIMIT)], [], model.values, 0, oracle)
    assert not expected.in_reach(2.0, [exact.float() + 1])


def test_an_output_without_elements_has_no_ties():
    empty = torch.empty(0, WIDTH, dtype=torch.float64)
    run = Run(Values({"t": 0}, [Spec.of(empty)], [empty]), [])
    expected = Expected(run, [Leaf(empty, empty.float(), 0.0, 0.0, LIMIT)], [], Router().values, 0, run)
    assert not expected.in_reach(2.0, [empty.float()])
