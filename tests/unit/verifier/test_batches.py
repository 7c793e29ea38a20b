"""Many small tensors receive the same judgements as each would separately."""

import math

import pytest
import torch

from verifier.correctness.batches import deviations, distances, judgements
from verifier.correctness.bounds import deviation, distance, judge


def pairs():
    torch.manual_seed(3)
    exact = [torch.randn(size, dtype=torch.float64) for size in (1, 7, (3, 5), 64, (2, 3, 4), 9, 9, 9, 9, 9, ())]
    exact += [torch.zeros(6, dtype=torch.float64), torch.randn(70000, dtype=torch.float64), torch.randn(4, 6, dtype=torch.float64).t()]
    values = [(tensor * (1 + 1e-6 * torch.randn(tensor.shape))).float() for tensor in exact]
    values[4] = values[4] * 1.5
    values[5][2] = math.nan
    values[6][0] = exact[6][0] = math.inf
    values[7][1], exact[7][1] = math.inf, -math.inf
    exact[8][3] = math.nan
    counters = [torch.tensor(index) for index in range(6)]
    values += counters + [torch.arange(4) > 1 for _ in range(5)]
    exact += [*counters[:5], torch.tensor(9)] + [torch.arange(4) > 1 for _ in range(4)] + [torch.arange(4) > 2]
    return values, exact


def test_each_is_judged_as_it_would_be_alone():
    values, exact = pairs()
    limits = [1e-5 if value.is_floating_point() else 0.0 for value in values]
    for found, alone in zip(judgements(values, exact, limits), map(judge, values, exact, limits), strict=True):
        assert (found.ok, found.detail, found.bound) == (alone.ok, alone.detail, alone.bound)
        assert found.error == pytest.approx(alone.error, rel=1e-9) if alone.error is not None else found.error is None
    for found, alone in zip(deviations(values, exact), map(deviation, values, exact), strict=True):
        assert found == pytest.approx(alone, rel=1e-9)


def test_distances():
    values, exact = pairs()
    found = distances(values, exact)
    for error, value, reference in zip(found, values, exact, strict=True):
        if error is None:
            continue
        assert error == (pytest.approx(distance(value, reference), rel=1e-9) if value.is_floating_point() else 0.0)
    alone = {index for index, error in enumerate(found) if error is None}
    assert alone == {5, 6, 7, 8, 12, 19, 24}  # values that are not finite, large values, or differing integers
    assert distances(values[:2], exact[:2]) == [None, None] and distances([], []) == []


def test_tensors_of_one_type_and_of_another():
    torch.manual_seed(1)
    values = [torch.randn(20).bfloat16() for _ in range(6)] + [torch.randn(20) for _ in range(6)]
    others = [value + 0.01 * torch.randn(20).to(value.dtype) for value in values]
    for error, value, other in zip(distances(values, others), values, others, strict=True):
        assert error == pytest.approx(distance(value, other), rel=1e-5)
