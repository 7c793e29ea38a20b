"""The policy writes with a CUDA graph on a GPU."""

from __future__ import annotations

import pytest

from agents.rl import scratch
from verifier.devices import cuda_driver

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
]


def test_a_recorded_step_writes_what_single_steps_write(monkeypatch):
    policy = scratch.TinyPolicy(scratch.Size(width=128, layers=2, heads=4, longest=256), seed=3, device="cuda:0")
    prompts = [policy.encode(text) for text in ("x", "def forward(self, x):", "return x\n")]
    recorded = policy.sample(prompts, 64, 1e-6)
    monkeypatch.setattr(scratch, "LOOK", 1 << 20)  # nothing is recorded for so few tokens
    assert policy.sample(prompts, 64, 1e-6) == recorded
    assert recorded == [policy.sample([prompt], 64, 1e-6)[0] for prompt in prompts]
