"""Differences of all pairs along one axis need two positions on it simultaneously, so they are not a loop over that axis."""

import pytest


@pytest.mark.parametrize("rest", ["torch.exp(c[..., :, None] - c[..., None, :]), torch.exp(c)", "torch.relu(x[:, :, None] * x[:, None, :]) + 1"])
def test_pairs(compiled, task, rest):
    found = compiled(task(f"c = torch.cumsum(x, -1)\nreturn {rest}", "torch.randn(3, 8)", "pass"))
    found.check()
