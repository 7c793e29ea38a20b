"""The limit on the distance between two programs' running averages after all timed calls."""

import pytest
import torch

from verifier.correctness.bounds import judge
from verifier.correctness.moved_state import GRANTED, STATE_OFF, state_limit


def averaged(dtype: torch.dtype, means: list[torch.Tensor], skipped: int = 0) -> torch.Tensor:
    """Returns a running mean with momentum 0.1, kept in `dtype`, that skips the first `skipped` calls."""
    value = torch.zeros_like(means[0]).to(dtype)
    for mean in means[skipped:]:
        value = (0.9 * value.float() + 0.1 * mean).to(dtype)
    return value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_told_from_updates_that_are_left_out(dtype):
    generator = torch.Generator().manual_seed(3)
    true = torch.randn(64, generator=generator)
    means = [true * (1 + 0.05 * torch.randn(64, generator=generator)) for _ in range(60)]
    sound = averaged(dtype, [mean.to(dtype).float() for mean in means])  # rounds the batch statistics first
    expected = averaged(dtype, means)
    assert judge(sound, expected, state_limit(dtype)).ok
    assert not judge(averaged(dtype, means, skipped=len(means)), expected, state_limit(dtype)).ok
    assert not judge(averaged(dtype, means, skipped=len(means) - 5), expected, state_limit(dtype)).ok


def test_single_precision_keeps_its_limit():
    assert state_limit(torch.float32) == STATE_OFF and state_limit(torch.float32, GRANTED) == GRANTED


def test_updates_that_are_left_out_once_an_average_has_settled_are_seen():
    generator = torch.Generator().manual_seed(3)
    means = [torch.rand(40_000, 16, generator=generator).mean(0) for _ in range(120)]
    expected = averaged(torch.float32, means)
    sound = averaged(torch.float32, [mean * (1 + 1e-6) for mean in means])
    settled = averaged(torch.float32, means[:80])
    assert judge(sound, expected, state_limit(torch.float32)).ok
    assert not judge(settled, expected, state_limit(torch.float32)).ok and judge(settled, expected, GRANTED).ok
