from __future__ import annotations

import math

import pytest
import torch

from verifier.correctness import bounds as correctness
from verifier.correctness.bounds import ULPS, bound, distance, judge
from verifier.correctness.inputs import reshape_distribution
from verifier.randomising import randomised


def test_the_norm_is_relative_for_large_and_for_small_elements():
    expected = torch.tensor([1.0, 1000.0, 0.0], dtype=torch.float64)
    rms = float(expected.square().mean().sqrt())
    value = expected.clone()
    value[2] = 1e-3
    assert distance(value, expected) == pytest.approx(1e-3 / rms)


def test_tiny_outputs_do_not_pass_as_zero():
    expected = torch.rand(100, dtype=torch.float64) * 1e-6
    assert not judge(torch.zeros(100), expected, bound(0.0, [], torch.float32)).ok


def test_nan_is_no_wildcard():
    expected = torch.ones(4, dtype=torch.float64)
    assert not judge(torch.tensor([1.0, 1.0, math.nan, 1.0]), expected, 1.0).ok
    expected[2] = math.nan
    assert judge(torch.tensor([1.0, 1.0, math.nan, 1.0]), expected, 1e-6).ok
    assert not judge(torch.ones(4), expected, 1.0).ok


def test_infinities_keep_their_sign():
    expected = torch.tensor([math.inf, 1.0], dtype=torch.float64)
    assert judge(torch.tensor([math.inf, 1.0]), expected, 1e-6).ok
    assert not judge(torch.tensor([-math.inf, 1.0]), expected, 1e-6).ok


def test_a_failure_names_the_first_bad_index():
    value = torch.ones(3, 4)
    value[1, 2] = 2
    assert "[1, 2]" in judge(value, torch.ones(3, 4, dtype=torch.float64), 1e-6).detail


def test_integers_are_exact():
    assert judge(torch.tensor([1, 2]), torch.tensor([1, 2]), 0).ok
    assert "[1]" in judge(torch.tensor([1, 3]), torch.tensor([1, 2]), 0).detail


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_lower_precision_is_outside_the_bound_of_fp32(dtype):
    torch.manual_seed(0)
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    exact = a.double() @ b.double()
    limit = bound(distance(a @ b, exact), [], torch.float32)
    assert judge((a.T.contiguous().T @ b), exact, limit).ok
    assert not judge(a.to(dtype).float() @ b.to(dtype).float(), exact, limit).ok


def test_the_bound_has_a_floor_in_ulps():
    assert bound(0.0, [], torch.float32) == ULPS * torch.finfo(torch.float32).eps


def test_distributions_and_weights():
    generator = torch.Generator().manual_seed(1)
    tensor = torch.rand(1000)
    reshape_distribution("negative", tensor, generator)
    assert bool((tensor <= 0).all())
    spiked = torch.rand(30, 40).T + 0.5
    own = spiked.clone()
    reshape_distribution("spiked", spiked, generator)
    assert 1 <= int((spiked != own).sum()) <= 3 and bool((spiked < 0).any())
    assert torch.equal(spiked.flatten()[:600], own.flatten()[:600])
    variance = torch.ones(64)
    other = randomised("bn.running_var", variance, False, generator)
    assert bool((other > 0).all()) and len(other.unique()) > 1
    assert randomised("mask", torch.tril(torch.ones(8, 8)), False, generator) is None
    assert randomised("count", torch.zeros((), dtype=torch.int64), False, generator) is None
    for constant in (torch.zeros(64), torch.full((64,), 1e-6)):  # a gate that starts closed: what is behind it becomes visible
        assert float(randomised("gate", constant, True, generator).abs().max()) > 1e-2
    turned = randomised("rotation", torch.eye(8), False, generator)
    assert bool((turned != torch.eye(8)).all())
    table = torch.linspace(0.1, 0.9, 64)
    narrow = randomised("table", table, False, generator, wide=False)
    assert bool((narrow != table).any()) and bool((narrow >= 0.1).all()) and bool((narrow <= 0.9).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_is_the_same_piece_by_piece(monkeypatch, dtype):
    monkeypatch.setattr(correctness, "CHUNK", 7)
    expected = torch.randn(5, 20, generator=torch.Generator().manual_seed(3)).to(dtype)
    value = (expected.double() * (1 + 1e-2 * torch.arange(100).view(5, 20) / 100)).to(dtype)
    a, b = value.double(), expected.double()
    by_hand = float(((a - b).abs() / (b.abs() + b.square().mean().sqrt())).max())
    assert distance(value, expected) == pytest.approx(by_hand, rel=1e-5)
    assert correctness.euclidean(expected.flatten()) == pytest.approx(float(b.norm()), rel=1e-12)
    assert correctness.same_values(value, value.clone()) and not correctness.same_values(value, expected)
    last = expected.clone()
    last[4, 19] += 1
    assert not correctness.same_values(last, expected)
    last[4, 19] = expected[0, 0] = math.nan
    assert correctness.same_values(expected, expected.clone()) and not correctness.same_values(last, expected)
    assert correctness.same_values(expected[:, ::2], expected[:, ::2].clone())


@pytest.mark.parametrize("where", [0, 9, 99])
def test_no_piece_hides_what_is_not_finite(monkeypatch, where):
    monkeypatch.setattr(correctness, "CHUNK", 10)
    expected = torch.ones(100)
    for odd in (math.nan, math.inf, -math.inf):
        value = expected.clone()
        value[where] = odd
        assert distance(value, expected) == math.inf and not judge(value, expected, 1.0).ok
        assert judge(value, value.clone(), 1.0).ok and distance(value, value.clone()) == 0.0


def test_numbers_at_the_end_of_fp32_are_told_apart():
    huge = torch.full((64,), 3e38)
    assert distance(-huge, huge) == pytest.approx(1.0) and not judge(-huge, huge, 1e-3).ok
    vast = torch.full((64,), 1.7e308, dtype=torch.float64)
    assert distance(-vast, vast) == math.inf and distance(vast.clone(), vast) == 0.0
    tiny = torch.full((64,), 1e-28)
    assert distance(2 * tiny, tiny) == pytest.approx(0.5) and distance(tiny.clone(), tiny) == 0.0
