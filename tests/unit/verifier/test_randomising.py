"""Different weights open every gate: otherwise, whatever is hidden by a gate that is zero, nearly zero or closed would never be needed."""

from __future__ import annotations

import pytest
import torch

from verifier.randomising import hides, randomised


def drawn(tensor: torch.Tensor, parameter: bool = True, wide: bool = True) -> torch.Tensor:
    made = randomised("gate", tensor, parameter, torch.Generator().manual_seed(3), wide)
    assert made is not None and made.dtype == tensor.dtype
    return made


@pytest.mark.parametrize("gate", [torch.zeros(256), torch.full((256,), 1e-6), 1e-9 * torch.randn(256, generator=torch.Generator().manual_seed(1))])
def test_a_gate_that_hides_what_it_scales_is_opened(gate):
    assert float(drawn(gate).abs().mean()) > 0.01


@pytest.mark.parametrize("gate", [torch.full((256,), -40.0), -30.0 - torch.rand(256, generator=torch.Generator().manual_seed(1))])
def test_a_gate_that_a_large_number_closes_is_opened(gate):
    made = drawn(gate)
    assert int((made > 0).sum()) > 64 and int((made < 0).sum()) > 64 and float(made.abs().max()) <= 41
    assert bool((drawn(gate, wide=False) < 0).all())


def test_weights_keep_their_size_and_hide_nothing():
    own = 0.02 * torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    assert not hides(own, True) and hides(torch.ones(8), False) and hides(1e-9 * own, True) and not hides(1e-9 * own, False)
    assert hides(own - 20, True) and not hides(torch.zeros(8, dtype=torch.int64), False)
    assert 0.5 < float(drawn(own).norm() / own.norm()) < 2
    assert float(drawn(torch.full((8,), 1e-5), parameter=False).abs().max()) < 0.1


@pytest.mark.parametrize("wide", [True, False])
def test_complex_weights_vary_like_real_ones(wide):
    own = torch.ones(9, dtype=torch.complex64)
    other = randomised("filter", own, True, torch.Generator().manual_seed(1), wide)
    assert other is not None and other.dtype == own.dtype and not torch.equal(other, own) and hides(own, True)
    mask = torch.tensor([0, 1, 1], dtype=torch.complex64)
    assert randomised("mask", mask, False, torch.Generator().manual_seed(1), wide) is None
    assert not hides(torch.randn(9, dtype=torch.complex64), True)


@pytest.mark.parametrize("own", [torch.ones(256), -0.5 - torch.rand(256, generator=torch.Generator().manual_seed(1))])
def test_some_signs_change_where_all_are_the_same(own):
    changed = int((drawn(own) * own < 0).sum())
    assert 32 < changed < 96 and not bool((drawn(own, wide=False) * own < 0).any()) and not bool((drawn(own, parameter=False) * own < 0).any())
    kept = randomised("gain", own, True, torch.Generator().manual_seed(3), flips=False)
    assert kept is not None and not bool((kept * own < 0).any())
