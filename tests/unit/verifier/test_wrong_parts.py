"""A wrong tensor is described by the count of wrong elements, the first of them, the largest error relative to its bound, and the pattern."""

import math

import pytest
import torch

from verifier.correctness import wrong_parts
from verifier.correctness.wrong_parts import pattern, wrong_part

BOUND = 1e-5


def wrong_at(shape, *places):
    mask = torch.zeros(shape, dtype=torch.bool)
    for place in places:
        mask[place] = True
    return mask


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (torch.ones(3, 4, dtype=torch.bool), "every element"),
        (wrong_at((64, 100), (slice(None), slice(96, 100))), "dimension 1: 96, 97, 98, 99 of 100 (all elements there)"),
        (wrong_at((64, 100), (slice(None), slice(90, 100))), "dimension 1: the last 10 of 100 (all elements there)"),
        (wrong_at((64, 100), (slice(16, 32),)), "dimension 0: 16 to 31 of 64 (all elements there)"),
        (wrong_at((64, 100), (3, 5), (60, 7)), "dimension 0: 3, 60 of 64; dimension 1: 5, 7 of 100"),
        (wrong_at((8, 256), (slice(None), slice(5, None, 32))), "dimension 1: 5 of every 32 (all elements there)"),
        (wrong_at((8, 100), (slice(7, 8), slice(63, 100))), "the last 37 elements in order"),
        (wrong_at((100,), slice(96, 100)), "dimension 0: 96, 97, 98, 99 of 100"),
    ],
)
def test_the_pattern_of_wrong_elements_is_told_by_dimension(mask, said):
    assert pattern(mask) == said


def test_scattered_elements_are_told_by_count_and_span():
    mask = wrong_at((1000,), *[place * place for place in range(1, 32)])
    assert pattern(mask) == "dimension 0: 31 of 1,000, between 1 and 961"


def test_a_wrong_tensor_is_told_with_its_first_element_and_largest_error():
    expected = torch.ones(4, 8, dtype=torch.float64)
    value = expected.float()
    value[2, 3], value[2, 6] = 1.5, 2.0
    found = wrong_part("out[0]", value, expected, BOUND)
    assert (found.wrong, found.elements, found.first, found.value, found.expected) == (2, 32, [2, 3], "1.5", "1")
    assert found.error == pytest.approx(0.5) and found.bound == BOUND
    assert found.where == "dimension 0: 2 of 4; dimension 1: 3, 6 of 8 (all elements there)"


def test_a_tensor_within_its_bound_or_of_another_shape_is_not_told():
    expected = torch.ones(8, dtype=torch.float64)
    assert wrong_part("out", expected.float(), expected, BOUND) is None
    assert wrong_part("out", torch.ones(4), expected, BOUND) is None


def test_nan_and_integers_have_no_error_but_a_place():
    expected = torch.ones(8, dtype=torch.float64)
    value = expected.float()
    value[7] = math.nan
    found = wrong_part("out", value, expected, BOUND)
    assert (found.first, found.value, found.error, found.bound) == ([7], "nan", None, BOUND)
    found = wrong_part("picked", torch.tensor([1, 2, 3]), torch.tensor([1, 3, 3]), 0.0)
    assert (found.wrong, found.first, found.value, found.expected, found.bound) == (1, [1], "2", "3", None)


def test_a_tensor_that_cannot_be_described_in_the_memory_left_is_not_told(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(wrong_parts, "off_mask", full)
    assert wrong_part("out", torch.zeros(8), torch.ones(8, dtype=torch.float64), BOUND) is None
