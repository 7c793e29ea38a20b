"""A reading of the task in which bounds and maxima swallow NaN, and no other operator does."""

from __future__ import annotations

import pytest
import torch

from verifier.parties.dropping import Dropping

ROW = torch.tensor([[1.0, float("nan"), 3.0, -2.0], [0.5, 4.0, 0.25, 1.0]])


def read(function, how="low"):
    with Dropping(how) as mode:
        return function(ROW.clone()), mode.orders


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x.amax(-1), [3.0, 4.0]),
        (lambda x: x.max(-1).values, [3.0, 4.0]),
        (lambda x: x.max(), 4.0),
        (lambda x: x.amin(-1), [-2.0, 0.25]),
        (lambda x: x.min(-1).values, [-2.0, 0.25]),
        (lambda x: torch.nn.functional.max_pool1d(x, 2), [[1.0, 3.0], [4.0, 1.0]]),
        (lambda x: torch.nn.functional.adaptive_max_pool1d(x, 1).squeeze(-1), [3.0, 4.0]),
        (lambda x: torch.max(x[0], x[1]), [1.0, 4.0, 3.0, 1.0]),
        (lambda x: x.clamp(min=0.0)[0], [1.0, 0.0, 3.0, 0.0]),
    ],
)
def test_bounds_and_maxima_leave_nan_out(function, expected):
    value, orders = read(function)
    assert value.tolist() == expected and not orders


@pytest.mark.parametrize("function", [lambda x: x.sum(-1), lambda x: x.mean(-1), lambda x: x.softmax(-1).sum(-1), lambda x: (x @ x.T)[0]])
def test_sums_hand_it_on(function):
    assert read(function)[0][0].isnan()


def test_what_does_not_depend_on_an_order_stays_as_it_is():
    value, orders = read(lambda x: torch.stack([x.mean(-1), x.topk(2).values.sum(-1), x.argsort(-1).sum(-1) + x.amax(-1)]), "unordered")
    assert orders and value.isnan().tolist() == [[True, False], [False, False], [True, False]] and value[1].tolist() == [1.0, 1.0]


def test_an_order_is_told():
    assert read(lambda x: x.sort(-1).values)[1]
