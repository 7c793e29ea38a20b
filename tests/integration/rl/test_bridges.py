"""Other trainers complete a short training run against the environment: TRL in both of its modes, and `verifiers`. `make test-learning` installs
them."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.resources import files
from types import SimpleNamespace

import pytest

from agents.rl.bridges import trl_environment, trl_reward, trl_rows, verifiers_taskset
from agents.rl.client import EnvironmentClient
from agents.rl.environment import Problem
from tests.integration.rl.served import serving
from tests.integration.rl.tiny import tiny_model
from tests.unit.rl.rl_verifier import TASK, FakeVerifier, program

PROBLEMS = [Problem(id="a", task=TASK), Problem(id="b", task=TASK.replace("softmax", "tanh"))]


def trained(folder, **given):
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    model, tokenizer = tiny_model((files("trl") / "chat_templates" / "qwen3.jinja").read_text())  # a model whose tool calls TRL can parse
    rows = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in trl_rows(PROBLEMS)]
    arguments = trl.GRPOConfig(
        output_dir=str(folder), max_steps=2, per_device_train_batch_size=2, num_generations=2, max_completion_length=8, use_cpu=True, report_to=[],
        save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(model=model, args=arguments, train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer, **given)
    trainer.train()
    return trainer


def test_trl_trains_by_a_reward_function(tmp_path):
    pytest.importorskip("trl")
    scores: list[dict] = []
    with serving(PROBLEMS, [FakeVerifier()]) as address:
        trainer = trained(tmp_path, reward_funcs=trl_reward(EnvironmentClient(address), scores.append))
    assert trainer.state.global_step == 2 and len(scores) == 4 and all(one["gate"] == "rejected" for one in scores)


def test_trl_trains_by_an_environment(tmp_path):
    pytest.importorskip("trl")
    with serving(PROBLEMS, [FakeVerifier()], turns=2) as address:
        trainer = trained(tmp_path, environment_factory=trl_environment(address))
    assert trainer.state.global_step == 2


def test_the_bridge_to_verifiers_scores_a_rollout():
    pytest.importorskip("verifiers.v1")
    with serving(PROBLEMS, [FakeVerifier()]) as address:
        taskset = verifiers_taskset(PROBLEMS, EnvironmentClient(address))
        tasks = list(taskset)
        assert [task.data.id for task in tasks] == ["a", "b"] and TASK.strip() in tasks[0].data.prompt
        trace = SimpleNamespace(last_reply=f"```python\n{program(low=1.5)}```", info={})
        assert asyncio.run(tasks[0].verified(trace)) > 1 and trace.info["stitchwork"]["low"] == 1.5
        with pytest.raises(RuntimeError, match="no sample"):
            asyncio.run(tasks[0].verified(SimpleNamespace(last_reply=program(status="died"), info={})))
    assert json.dumps(trace.info["stitchwork"])


def test_openenvs_own_client_talks_to_the_server():
    core = pytest.importorskip("openenv.core")

    async def talk(address: str):
        async with core.GenericEnvClient(base_url=address) as client:
            begun = await client.reset(seed=1)
            answer = await client.step({"program": program(low=1.5)})
            return begun, answer, await client.state()

    with serving(PROBLEMS, [FakeVerifier()]) as address:
        begun, answer, state = asyncio.run(talk(address))
    assert not begun.done and "ModelNew" in begun.observation["prompt"]
    assert answer.done and answer.reward > 1 and answer.observation["rubric"]["anti_hacking"] == 5 and state["step_count"] == 1


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    with pytest.raises(ImportError, match="pip install verifiers"):
        verifiers_taskset(PROBLEMS, EnvironmentClient("http://127.0.0.1:9"))
