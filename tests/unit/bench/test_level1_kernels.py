"""The distance between a printed program's output and the output of eager."""

from math import inf, nan

import pytest
import torch

from bench.level1_kernels import distance


@pytest.mark.parametrize(
    ("got", "expected", "far"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([3.0, 4.0], [3.0, 5.0], 1 / 17**0.5),
        ([nan, 2.0], [1.0, 2.0], inf),
        ([nan, nan], [1.0, 1.0], inf),
        ([nan, inf], [nan, inf], 0.0),
        ([inf, 1.0], [-inf, 1.0], inf),
        ([1.0, 1.0], [nan, 1.0], inf),
    ],
)
def test_no_number_is_no_match(got, expected, far):
    assert distance(torch.tensor(got), torch.tensor(expected)) == pytest.approx(far)


def test_another_shape_is_an_error():
    with pytest.raises(ValueError, match=r"shape \(2,\) in place of \(3,\)"):
        distance(torch.ones(2), torch.ones(3))
