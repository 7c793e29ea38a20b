"""Uses the real verifier on the CPU for the filter for synthetic tasks and for an episode whose programs are wrong in several ways."""

from __future__ import annotations

import asyncio

import pytest

from agents.rl.client import EnvironmentClient
from agents.rl.data import making
from agents.rl.data.synthetic import generate
from agents.rl.environment import problems_in
from tests.integration.rl.served import serving
from tests.unit.rl.rl_verifier import TASK
from verifier.client import Verifier

TASK = TASK + "\n\ndef get_inputs():\n    return [torch.rand(8, 16)]\n\n\ndef get_init_inputs():\n    return []\n"
WRONG = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
pytestmark = pytest.mark.timeout(280)


def test_synthetic_tasks_are_admitted_in_the_sandbox(tmp_path):
    async def act() -> int:
        client = Verifier("cpu", tmp_path / "cache")
        try:
            into = making.Lines(tmp_path / "admitted.jsonl")
            tasks = [making.line_of(task, 0) for task in generate(2, 0, {})]
            broken = {**tasks[0], "sha": "0" * 64, "source": tasks[0]["source"].replace("return x", "raise ValueError(x)")}
            return await making.admit([*tasks, broken], client, into, lambda line: None)
        finally:
            await client.close()

    assert asyncio.run(act()) == 2


def test_wrong_programs_are_worth_nothing_and_say_why(tmp_path):
    with serving(problems_in({"a": TASK}), [Verifier("cpu", tmp_path / "cache")], turns=4) as address:
        client = EnvironmentClient(address)
        episode = client.reset()["episode_id"]
        told = [client.step(episode, program=WRONG.format(made)) for made in ("x", "x[:4].softmax(-1)", "x.softmax(-1) * float('nan')", "y")]
    assert [answer["reward"] for answer in told] == [0.0] * 4
    assert [answer["observation"]["status"] for answer in told] == ["wrong_result"] * 3 + ["crashed"]
    assert "shape" in told[1]["observation"]["feedback"] and "NameError" in told[3]["observation"]["feedback"]
