"""Precision is checked in every head, channel and column, no matter how small its elements are relative to the others."""

from __future__ import annotations

import random

import pytest
import torch

from verifier.correctness.leaf import Leaf
from verifier.correctness.slices import Axis, axes_of, stray

GENERATOR = torch.Generator().manual_seed(4)


def said(value: torch.Tensor, exact: torch.Tensor, tolerated: float = 0.0) -> str:
    leaf = Leaf(exact, exact.float(), 1e-7, 0.0, 1e-6, tolerated)
    return leaf.finer(value.float(), "fp32-strict")


def output(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


def rough(values: torch.Tensor) -> torch.Tensor:
    return values.bfloat16().double()


HEADS, COLUMNS, CHANNELS, FEW = (128, 32, 64), (256, 64), (4, 96, 20, 20), (12, 16)


@pytest.mark.parametrize(("shape", "at"), [(HEADS, (77,)), (COLUMNS, (slice(None), 5)), (CHANNELS, (slice(None), 40)), (FEW, (slice(3, None),))])
def test_one_small_slice_in_16_bits_is_seen(shape, at):
    exact = output(*shape)
    exact[at] *= 1e-4
    assert said(exact, exact) == ""
    value = exact.clone()
    value[at] = rough(exact[at])
    assert "slices along dimension" in said(value, exact)


def test_single_elements_that_nearly_cancel_are_not_a_slice():
    exact = output(64, 256)
    value = exact.clone()
    value[:, 3::50] += 1e-6 * exact.abs().mean()  # six elements in each row, none of which exceeds the bound
    assert said(value, exact) == ""


def test_what_pytorch_is_off_by_is_granted():
    exact = output(256, 64)
    exact[:, 5] *= 1e-4
    own = exact.float()
    own[:, 5] *= 1 + 1e-3 * torch.randn(256, generator=GENERATOR)
    leaf = Leaf(exact, own, 1e-7, 0.0, 1e-6)
    value = exact.float()
    value[:, 5] *= 1 + 2e-3 * torch.randn(256, generator=GENERATOR)
    assert leaf.finer(value, "fp32-strict") == ""


SLICES = 400


def near_ties(tied: int, luck: int, error: float) -> str:
    """Returns the finding if `tied` slices are decided by near ties, where PyTorch is off by up to 1e-4. In `luck` other such slices, PyTorch is
    accurate by chance and the program is off by `error`."""
    usual, found = torch.full((SLICES,), 3e-7, dtype=torch.float64), torch.full((SLICES,), 4e-7, dtype=torch.float64)
    usual[:tied] = torch.linspace(1e-5, 1e-4, tied, dtype=torch.float64)
    found[:tied] = usual[:tied].flip(0)
    found[tied : tied + luck] = error
    return stray([found], [[usual]], [Axis(0, torch.zeros(SLICES, 256, dtype=torch.int64))], torch.float32, 0.0)


@pytest.mark.parametrize(("tied", "luck"), [(8, 1), (10, 1), (81, 2)])
def test_where_pytorch_is_accurate_by_luck_beside_near_ties_no_program_is_accused(tied, luck):
    assert near_ties(tied, luck, 5e-5) == ""


@pytest.mark.parametrize(("tied", "luck", "error"), [(0, 1, 5e-5), (1, 1, 5e-5), (7, 1, 5e-5), (10, 2, 5e-5), (81, 11, 5e-5), (81, 1, 1e-3)])
def test_many_larger_or_single_errors_are_not_luck(tied, luck, error):
    assert "less precise" in near_ties(tied, luck, error)


def test_slices_of_few_elements_and_without_any_are_left_alone():
    draws = random.Random(1)
    assert axes_of(torch.ones(8), draws) == [] and axes_of(torch.ones(4, 4), draws) == [] and axes_of(torch.ones(3, 0, 5), draws) == []
    found = {axis.dimension: axis.at for axis in axes_of(torch.ones(2, 40, 30), draws)}
    assert {dimension: tuple(at.shape) for dimension, at in found.items()} == {0: (2, 256), 1: (40, 60), 2: (30, 80)}
    numbers = torch.arange(2400).view(2, 40, 30)
    for dimension, at in found.items():
        wanted = numbers.movedim(dimension, 0).flatten(1)
        assert all(set(row.tolist()) <= set(wanted[index].tolist()) for index, row in enumerate(at))


def test_without_fp64_the_bound_holds_for_most_rows_relative_to_each():
    own = output(512, 128).float()
    own[::8] *= 1e6
    leaf = Leaf(own, own, 0.0, 0.0, 3e-5, precise=False)
    small = torch.arange(512) % 8 != 0
    assert leaf.finer(own * (1 + 1e-6), "fp32-strict") == ""
    assert "less precise" in leaf.finer(torch.where(small[:, None], own.bfloat16().float(), own), "fp32-strict")
