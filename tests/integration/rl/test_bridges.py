"""Other trainers complete a short training against the environment: TRL by both of its ways, and `verifiers`. `make test-learning` installs them."""

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
from tests.unit.rl.rl_verifier import TASK, FakeVerifier, program

PROBLEMS = [Problem(id="a", task=TASK), Problem(id="b", task=TASK.replace("softmax", "tanh"))]


def tiny_model():
    """A llama of a few thousand weights that knows single characters."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {token: n for n, token in enumerate(["<end>", "?", "\n", *map(chr, range(32, 127))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", unk_token="?")
    fast.chat_template = (files("trl") / "chat_templates" / "qwen3.jinja").read_text()  # one whose tool calls TRL can read
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=8192,
        eos_token_id=0, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config), fast


def trained(folder, **given):
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    model, tokenizer = tiny_model()
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


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    with pytest.raises(ImportError, match="pip install verifiers"):
        verifiers_taskset(PROBLEMS, EnvironmentClient("http://127.0.0.1:9"))
