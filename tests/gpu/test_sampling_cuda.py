"""The policy writes with a CUDA graph on a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def test_a_recorded_step_writes_what_single_steps_write(monkeypatch):
    from agents.rl import scratch

    policy = scratch.TinyPolicy(scratch.Size(width=128, layers=2, heads=4, longest=256), seed=3, device="cuda:0")
    prompts = [policy.encode(text) for text in ("x", "def forward(self, x):", "return x\n")]
    recorded = policy.sample(prompts, 64, 1e-6)
    monkeypatch.setattr(scratch, "LOOK", 1 << 20)  # nothing is recorded for so few tokens
    assert policy.sample(prompts, 64, 1e-6) == recorded
    assert recorded == [policy.sample([prompt], 64, 1e-6)[0] for prompt in prompts]
