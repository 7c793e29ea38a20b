"""Numbers and flags among the non-tensor arguments."""

from __future__ import annotations

import torch

from verifier.correctness.trial_plan import other_numbers
from verifier.judge.session import Values
from verifier.layout import decode, encode


def values(*arguments) -> Values:
    tensors: list[torch.Tensor] = []
    tree = encode(list(arguments), tensors, whole=True)
    return Values(tree, [], tensors)


def read(made: Values | None):
    return None if made is None else decode(made.tree, made.tensors)


def test_numbers_change_wherever_they_stand():
    own = values(torch.ones(2), 0.5, 3, {"scale": 2.0, "names": ["a", 0.0]}, (True, None))
    x, *rest = read(other_numbers(own, float))
    assert torch.equal(x, torch.ones(2)) and rest == [0.375, 3, {"scale": 1.5, "names": ["a", 0.75]}, (True, None)]
    assert read(other_numbers(own, int))[1:] == [0.5, 2, {"scale": 2.0, "names": ["a", 0.0]}, (True, None)]
    assert read(other_numbers(own, bool))[1:] == [0.5, 3, {"scale": 2.0, "names": ["a", 0.0]}, (False, None)]


def test_integers_come_nearer_to_zero_and_stay_sizes_and_dimensions():
    assert read(other_numbers(values(4, 1, 0, -1, -3), int)) == [3, 0, 1, 0, -2]


def test_without_such_numbers_there_is_nothing_to_try():
    own = values(torch.ones(2), "sum", None)
    assert other_numbers(own, int) is None and other_numbers(own, float) is None and other_numbers(own, bool) is None
