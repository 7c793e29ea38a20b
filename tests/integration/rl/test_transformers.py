"""Trains, resumes and merges a transformers model on the CPU in single precision. The merged model must give the same answers as the trained one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agents.rl.policy import TransformersPolicy, unadapted
from agents.rl.training import Trainer
from tests.integration.rl.tiny import tiny_model
from tests.unit.rl.test_training import Letters, config, curve, one_thread  # noqa: F401

TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def kept(folder: Path, template: str | None) -> None:
    torch.manual_seed(0)
    model, tokenizer = tiny_model(template)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(("template", "shown"), [(None, "ab"), (TEMPLATE, "<user>ab<assistant>")])
def test_a_prompt_goes_through_the_chat_template_where_there_is_one(tmp_path, template, shown):
    kept(tmp_path, template)
    policy = TransformersPolicy(str(tmp_path), dtype=torch.float32)
    assert policy.decode(policy.encode("ab")) == shown


def test_it_trains_continues_and_merges(tmp_path):
    kept(tmp_path / "base", TEMPLATE)

    def policy() -> TransformersPolicy:
        return TransformersPolicy(str(tmp_path / "base"), dtype=torch.float32)

    asked = policy().encode("ab")
    settings = {"rank": 2, "kl": 0.05, "learning_rate": 0.05, "save_every": 1}
    Trainer(policy(), config(steps=2, **settings), tmp_path / "whole").reinforce(Letters())
    Trainer(policy(), config(steps=1, **settings, recompute=1), tmp_path / "parts").reinforce(Letters())
    trainer = Trainer(policy(), config(steps=3, **settings), tmp_path / "parts")
    trainer.config = replace(trainer.config, steps=2)
    assert trainer.reinforce(Letters())[-1]["step"] == 2 and curve(tmp_path / "parts") == curve(tmp_path / "whole")
    trainer.config = replace(trainer.config, steps=3)
    trainer.supervise([("write a:", "aaa")])  # ensures that something is learned regardless of the rewards

    tokens, lengths = torch.tensor([asked]), torch.tensor([len(asked)])
    learned = trainer.policy.logits(tokens, lengths).detach()
    with unadapted(trainer.policy.module):
        assert not torch.allclose(trainer.policy.logits(tokens, lengths), learned)
    trainer.policy.save(tmp_path / "merged")
    merged = TransformersPolicy(str(tmp_path / "merged"), dtype=torch.float32)
    assert torch.allclose(merged.logits(tokens, lengths), learned, atol=1e-4)
