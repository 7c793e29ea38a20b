"""The trainer learns, continues as if it had never stopped, and does the arithmetic that it claims to do. It runs on the CPU, with a tiny model of
our own."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest
import torch

from agents.rl import tensors
from agents.rl.cli import main
from agents.rl.data.export import collect
from agents.rl.defaults import CONFIG
from agents.rl.policy import Adapted, adapt, merged, unadapted
from agents.rl.records import read_lines
from agents.rl.scratch import Size, TinyPolicy
from agents.rl.training import CannotTrain, Config, Sample, Trainer, summary, weigh


@pytest.fixture(autouse=True)
def one_thread():
    """A model this small is slower with more threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


SMALL = Size(width=32, layers=1, heads=2, longest=48)
ASKED = {"a": "write a:", "b": "write b:"}


class Letters:
    """Problems whose reward grows with the number of times one letter occurs; every fifth answer is not a sample."""

    def __init__(self, turns: int = 1, faults: bool = False):
        self.turns, self.faults, self.episodes, self.asked = turns, faults, {}, 0

    def reset(self, problem: str | None = None, seed: int | None = None) -> dict[str, Any]:
        name = problem or "ab"[(seed or 0) % 2]
        episode = f"e{len(self.episodes)}"
        self.episodes[episode] = [name, 0]
        return {"episode_id": episode, "problem": name, "prompt": ASKED[name]}

    def step(self, episode_id: str, *, program: str | None = None, reply: str | None = None) -> dict[str, Any]:
        name, turn = self.episodes[episode_id]
        self.episodes[episode_id][1] = turn = turn + 1
        reward = None if self.faults and sum(map(ord, reply)) % 5 == 0 else reply.count(name) / 6
        done = turn == self.turns or reward is None
        score = {"status": "passed" if reward else "wrong_result", "low": 1 + (reward or 0), "own_share": 1.0}
        seen = {"episode_id": episode_id, "problem": name, "prompt": "" if done else f"more {name}:", "components": score}
        return {"observation": seen, "reward": reward, "done": done}


def config(**changed) -> Config:
    small = {"steps": 6, "prompts": 2, "group": 6, "most_tokens": 6, "learning_rate": 3e-3, "rank": 0, "save_every": 2, "batch": 5}
    return Config.of(**{**small, **changed})


def curve(folder) -> list[dict]:
    return [
        {name: value for name, value in line.items() if name not in ("seconds", "writing", "updating")}
        for line in read_lines(folder / "metrics.jsonl")
    ]


@pytest.mark.slow
def test_it_learns(tmp_path):
    trainer = Trainer(TinyPolicy(SMALL), config(steps=60, group=12, save_every=60), tmp_path)
    metrics = trainer.reinforce(Letters())
    first, last = (sum(line["reward"] for line in part) / 8 for part in (metrics[:8], metrics[-8:]))
    assert last > 3 * first and last > 0.3 and all(line["hacks"] == 0 for line in metrics)


@pytest.mark.parametrize("changed", [{}, {"rank": 4, "kl": 0.1}, {"kl": 0.1}, {"passes": 2, "turns": 2}])
def test_interrupted_and_continued_is_the_same_curve(tmp_path, changed):
    turns = changed.get("turns", 1)
    whole = Trainer(TinyPolicy(SMALL), config(**changed), tmp_path / "whole")
    whole.reinforce(Letters(turns, faults=True))

    class Interrupted(Exception):
        pass

    def stop(line: str) -> None:
        if line.startswith("step 3"):
            raise Interrupted

    with pytest.raises(Interrupted):
        Trainer(TinyPolicy(SMALL), config(**changed), tmp_path / "parts", stop).reinforce(Letters(turns, faults=True))
    assert len(curve(tmp_path / "parts")) == 3  # the third is not in the checkpoint, so it is run again
    with (tmp_path / "parts" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "torn')
    again = Trainer(TinyPolicy(SMALL), config(**changed), tmp_path / "parts")
    assert again.step == 2
    again.reinforce(Letters(turns, faults=True))
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    assert [line["reply"] for line in read_lines(tmp_path / "parts" / "rollouts.jsonl")] == [
        line["reply"] for line in read_lines(tmp_path / "whole" / "rollouts.jsonl")
    ]
    for name, one in whole.trained.items():
        assert torch.equal(one, again.trained[name]), name
    if "rank" not in changed and "kl" in changed:
        assert curve(tmp_path / "whole")[-1]["kl"] > 0


def test_recomputing_activations_changes_memory_and_nothing_else(tmp_path):
    def kept(trainer: Trainer) -> int:
        sizes: dict[int, int] = {}

        def pack(one: torch.Tensor) -> torch.Tensor:
            sizes[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
            return one

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
            held = trainer.chances([(list(range(20)), list(range(20)))])
        assert held
        return sum(sizes.values())

    big = Size(width=32, layers=4, heads=2, longest=48)
    plain, lean = (Trainer(TinyPolicy(big), config(steps=3, recompute=one), tmp_path / str(one)) for one in (0, 1))
    assert kept(lean) < kept(plain) / 2
    for trainer in (plain, lean):
        trainer.reinforce(Letters())
    assert curve(tmp_path / "0") == curve(tmp_path / "1")
    for name, one in plain.trained.items():
        assert torch.equal(one, lean.trained[name]), name


def test_other_settings_are_refused(tmp_path):
    Trainer(TinyPolicy(SMALL), config(steps=2), tmp_path).reinforce(Letters())
    with pytest.raises(CannotTrain, match="learning_rate"):
        Trainer(TinyPolicy(SMALL), config(learning_rate=1e-4), tmp_path)
    with pytest.raises(CannotTrain, match="another model"):
        Trainer(TinyPolicy(SMALL), config(), tmp_path, kind="supervised")
    for wrong in ({"group": 1}, {"steps": 0}, {"temperature": 0.0}, {"learning_rate": math.nan}):
        with pytest.raises(CannotTrain):
            config(**wrong)
    assert set(Config.__dataclass_fields__) == set(CONFIG)


def sample(group: int, reward: float | None, turn: int = 0, episode: str = "") -> Sample:
    return Sample(group, turn, [1], [2], "", "p", {"episode": episode or f"{group}{reward}{id(object())}"}, reward)


def test_advantages_are_by_group_and_turn_and_a_return_counts_what_it_led_to():
    samples = [sample(0, 1.0, 0, "x"), sample(0, 0.0, 0, "y"), sample(0, 2.0, 1, "y"), sample(0, 1.0, 1, "x"), sample(1, 0.5), sample(1, 0.5)]
    weigh(samples, 0.5)
    assert [one.advantage for one in samples] == [0.5, -0.5, 1.0, -1.0, None, None]  # the returns are 1.5 and 1.0; then 2 and 1
    samples = [sample(0, 1.0, 0, "x"), sample(0, None, 1, "x"), sample(0, 0.0, 0, "y")]
    weigh(samples, 0.5)
    assert [one.advantage for one in samples] == [1.0, None, -1.0]


def test_what_is_no_sample_teaches_nothing_and_is_counted():
    samples = [sample(0, 1.0), sample(0, None), sample(0, 0.0), sample(0, 0.0)]
    samples[3].score["gate"] = "rejected"
    weigh(samples, 0.4)
    told = summary(samples)
    assert samples[1].advantage is None and told["no_sample"] == 1 and told["samples"] == 4 and told["hacks"] == 0.25
    assert told["reward"] == pytest.approx(1 / 3) and told["groups_dropped"] == 0
    assert summary([])["reward"] is None


def test_a_folder_tells_what_is_trained_and_how_each_sitting_ended(tmp_path):
    about = {"model": "tiny", "team": "kernels"}
    Trainer(TinyPolicy(SMALL), config(steps=2), tmp_path, about=about).reinforce(Letters())

    class Gone(Letters):
        def reset(self, problem=None, seed=None):
            raise RuntimeError("the reward server does not answer")

    with pytest.raises(RuntimeError):
        Trainer(TinyPolicy(SMALL), config(steps=3), tmp_path, about=about).reinforce(Gone())
    said = json.loads((tmp_path / "run.json").read_text())
    assert {"kind": "grpo", "version": 1, **about}.items() <= said.items() and said["config"]["steps"] == 3
    assert [(one["step"], one["why"], one["ended"] is None) for one in said["sittings"]] == [
        (0, "", False),
        (2, "the reward server does not answer", False),
    ]


def test_a_group_shows_once_what_it_was_asked(tmp_path):
    class Kernels(Letters):
        def reset(self, problem=None, seed=None):
            return {**super().reset(problem, seed), "prompt": "\n\nTask:\n```python\nT\n```"}

    Trainer(TinyPolicy(SMALL), config(steps=1), tmp_path).reinforce(Kernels())
    shown = [(line["group"], line["task"], line["before"]) for line in read_lines(tmp_path / "rollouts.jsonl") if "task" in line]
    assert shown == [(0, "T", ""), (1, "T", "")]


def test_the_objective_is_clipped_wider_above_than_below(tmp_path):
    trainer = Trainer(TinyPolicy(SMALL), config(), tmp_path)
    for shift, advantage, loss, clipped in (
        (1.0, 1.0, -1.28, 1.0),
        (-1.0, -1.0, 0.8, 1.0),
        (1.0, -1.0, math.e, 0.0),
        (0.1, 1.0, -math.exp(0.1), 0.0),
    ):
        one = sample(0, 1.0)
        one.advantage = advantage
        one.old = trainer.chances([([1], [2])])[0][0].detach() - shift
        trainer.optimiser.zero_grad()
        found = trainer._backward([one], 1)
        assert found["loss"] == pytest.approx(loss, rel=1e-4) and found["clipped"] == clipped
        moved = sum(float(p.grad.abs().sum()) for p in trainer.trained.values() if p.grad is not None)
        assert (moved == 0) == bool(clipped)


def test_the_loss_is_a_mean_over_tokens_however_samples_are_batched(tmp_path):
    rows = [([1, 2, 3], [4, 5]), ([1], [6, 7, 8, 9]), ([3, 4], [5])]
    trainer = Trainer(TinyPolicy(SMALL), config(), tmp_path)
    together = trainer.chances(rows)[0]
    for row, chances in zip(rows, together, strict=True):
        assert torch.allclose(trainer.chances([row])[0][0], chances, atol=1e-5) and len(chances) == len(row[1])


def test_adapters_change_nothing_at_first_and_can_be_merged():
    policy = TinyPolicy(SMALL)
    tokens = torch.tensor([[1, 2, 3, 4]])
    before = policy.logits(tokens, torch.tensor([4])).detach()
    names = set(policy.module.state_dict())
    adapt(policy.module, 4, 8.0)
    assert torch.equal(policy.logits(tokens, torch.tensor([4])), before)
    trained = [name for name, one in policy.module.named_parameters() if one.requires_grad]
    assert trained and all(name.endswith((".a", ".b")) for name in trained)
    for layer in policy.module.modules():
        if isinstance(layer, Adapted):
            torch.nn.init.normal_(layer.b, std=0.1)
    changed = policy.logits(tokens, torch.tensor([4])).detach()
    with unadapted(policy.module):
        assert torch.equal(policy.logits(tokens, torch.tensor([4])), before)
    assert not torch.allclose(changed, before) and set(merged(policy.module)) == names
    other = TinyPolicy(SMALL, seed=1)
    other.module.load_state_dict(merged(policy.module))
    assert torch.allclose(other.logits(tokens, torch.tensor([4])), changed, atol=1e-5)


def test_supervised_training_learns_and_is_merged_and_reinforced_from_there(tmp_path, capsys):
    trainer = Trainer(TinyPolicy(SMALL), config(steps=80, prompts=4, save_every=80), tmp_path / "s", kind="supervised")
    metrics = trainer.supervise([(ASKED["a"], "aaa"), (ASKED["b"], "bbb")])
    assert metrics[-1]["loss"] < 0.3 * metrics[0]["loss"]
    trainer.policy.save(tmp_path / "weights")
    policy = TinyPolicy.load(tmp_path / "weights")
    torch.manual_seed(0)
    replies = [policy.decode(one) for one in policy.sample([policy.encode(ASKED["a"])] * 8, 6, 0.3)]
    assert replies.count("aaa") >= 6


def test_tensors_are_kept_without_pickle(tmp_path):
    held = {"half": torch.randn(3).bfloat16(), "step": torch.tensor(2.0), "bits": torch.tensor([True, False]), "none": torch.zeros(0, 3)}
    tensors.write(tmp_path / "x.npz", held, {"a": 1})
    found, about = tensors.read(tmp_path / "x.npz")
    assert about == {"a": 1} and all(torch.equal(found[name], one) and found[name].dtype == one.dtype for name, one in held.items())
    for data in (b"", b"PK\x03\x04", pickle.dumps({"about": 1}), (tmp_path / "x.npz").read_bytes()[:200]):
        (tmp_path / "y.npz").write_bytes(data)
        with pytest.raises(tensors.Damaged):
            tensors.read(tmp_path / "y.npz")


def test_a_gradient_that_is_no_number_ends_it(tmp_path):
    trainer = Trainer(TinyPolicy(SMALL), config(), tmp_path)
    with torch.no_grad():
        next(iter(trainer.trained.values()))[:] = math.nan
    with pytest.raises(CannotTrain, match="is not a number"):
        trainer.supervise([("a", "b")])


def test_the_commands(tmp_path, capsys):
    from agents.rl.data.writing import write_rows
    from tests.unit.rl.test_export import CLEAN, trace

    rows = write_rows(tmp_path, "rows", collect([("a", trace("rms_norm"))], CLEAN).rows, "jsonl", {})
    out = str(tmp_path / "run")
    TinyPolicy(SMALL).save(tmp_path / "begun")
    small = ["--start", str(tmp_path / "begun"), "--rank", "2", "--prompts", "1", "--save-every", "1", "--quiet", "--json"]
    assert main(["train", "--rows", str(rows), "--out", out, "--steps", "1", *small]) == 2
    assert "every pair is longer" in capsys.readouterr().err
    assert main(["merge", "--checkpoint", out, "--out", str(tmp_path / "m")]) == 2 and "does not exist" in capsys.readouterr().err
    Trainer(TinyPolicy(SMALL), Config.of(steps=1, rank=2), tmp_path / "short", kind="supervised").supervise([("a", "b")])
    assert main(["merge", "--checkpoint", str(tmp_path / "short"), *small[:2], "--out", str(tmp_path / "m")]) == 0
    assert TinyPolicy.load(tmp_path / "m").size == SMALL
    assert main(["train", "--server", "http://127.0.0.1:9", "--out", str(tmp_path / "g"), "--quiet"]) == 2
    assert "does not answer" in capsys.readouterr().err


def test_a_policy_from_scratch_over_byte_pairs_is_trained_merged_and_opened_again(tmp_path, capsys):
    from agents.rl.data.writing import write_rows
    from tests.unit.rl.test_export import CLEAN, trace

    rows = str(write_rows(tmp_path, "rows", collect([("a", trace("rms_norm"))], CLEAN).rows, "jsonl", {}))
    pairs, out = str(tmp_path / "pairs.json"), str(tmp_path / "run")
    assert main(["tokens", "--rows", rows, "--out", pairs, "--size", "600", "--least", "2"]) == 0
    assert "600 tokens" in capsys.readouterr().out
    more = ["--tokens", pairs, "--rank", "0", "--prompts", "1", "--batch", "1", "--save-every", "1", "--quiet"]
    assert main(["train", "--rows", rows, "--out", out, "--steps", "1", *more]) == 0
    assert main(["merge", "--checkpoint", out, "--tokens", pairs, "--out", str(tmp_path / "whole")]) == 0
    text = "class ModelNew(nn.Module):"
    again = TinyPolicy.load(tmp_path / "whole")
    assert again.decode(again.encode(text)) == text and len(again.encode(text)) <= len(text) / 2
    assert main(["train", "--rows", rows, "--out", str(tmp_path / "x"), "--tokens", rows]) == 2 and "no byte pairs" in capsys.readouterr().err
