from __future__ import annotations

import pytest
import torch

from verifier.correctness.triviality import trivial_guess
from verifier.judge.session import Values
from verifier.layout import Spec


def values(*tensors: torch.Tensor) -> Values:
    return Values({"l": [{"t": i} for i in range(len(tensors))]}, [Spec.of(t) for t in tensors], list(tensors))


@pytest.mark.parametrize(
    ("function", "guess"),
    [
        (lambda x: x * 0, "zeros"),
        (torch.ones_like, "ones"),
        (lambda x: torch.full_like(x, 3.0), "the outputs for other inputs"),
        (lambda x: x + 1e-9, "input 0, or its mean"),
        (lambda x: x.mean(-1), "input 0, or its mean"),
        (lambda x: (x * 0).long(), "the outputs for other inputs"),
        (lambda x: x * 2, ""),
        (lambda x: x.sum(-1), ""),
        (lambda x: x.argmax(-1), ""),
        (lambda x: x[:, :0], ""),
    ],
)
def test_guesses(function, guess):
    torch.manual_seed(0)
    one, two = torch.rand(32, 64), torch.rand(32, 64)
    assert trivial_guess(values(one), values(function(one)), values(two), values(function(two))) == guess


def test_every_output_has_to_be_guessed():
    torch.manual_seed(0)
    one, two = torch.rand(32, 64), torch.rand(32, 64)
    mixed = [values(x * 0, x * 2) for x in (one, two)]
    assert trivial_guess(values(one), mixed[0], values(two), mixed[1]) == ""


def test_a_bound_that_lets_fp16_through_proves_no_precision():
    torch.manual_seed(0)
    one, two = torch.rand(32, 64), torch.rand(32, 64)
    outputs = values(one * 2), values(two * 2)
    assert trivial_guess(values(one), outputs[0], values(two), outputs[1], [1e-5]) == ""
    assert trivial_guess(values(one), outputs[0], values(two), outputs[1], [1e-2]) == "the outputs cast to fp16"
    exact = [values((x > 0.5).float()) for x in (one, two)]  # no information is lost there
    assert trivial_guess(values(one), exact[0], values(two), exact[1], [1e-2]) == ""
