"""The experiment on programs: its splits, and its figures from files."""

from __future__ import annotations

import json

import pytest

from agents.rl.data.structure import structure
from agents.rl.data.synthetic import drawn
from bench.rl_arms.arms import course, figures
from bench.rl_arms.corpus import SEED, short, tasks


def test_no_task_has_the_structure_of_a_held_out_one():
    train, practice, held = tasks(60, 12, 20, {})
    keys = {structure(drawn(SEED, number).source()).key for number in held}
    assert len(train) == 60 and len(practice) == 20 and len(keys) == 12
    others = [*train, *practice]
    assert all(short(drawn(SEED, number)) for number in [*others, *held]) and len({*others, *held}) == 92
    assert not keys & {structure(drawn(SEED, number).source()).key for number in others}
    assert tasks(60, 12, 20, {})[2] == held and tasks(30, 12, 20, {})[0] == train[:30]


def test_figures_count_cheats_among_all_samples_and_success_by_own_kernels(tmp_path):
    lines = [
        {"label": "own kernels", "scored": {"reward": 2.0, "status": "passed", "class": "custom", "low": 4.0}},
        {"label": "own kernels", "scored": {"reward": 1.0, "status": "passed", "class": "mixed", "low": 1.0}},
        {"label": "handed back", "scored": {"reward": 0.5, "status": "passed", "class": "orchestration", "low": 1.0}},
        {"label": "remembers", "scored": {"reward": 0.0, "status": "wrong_result"}},
        {"label": "own kernels", "scored": {"reward": None, "no_sample": "busy"}},
    ]
    text = "".join(json.dumps({"name": "t", "sample": at, **line}) + "\n" for at, line in enumerate(lines))
    (tmp_path / "judged-naive.jsonl").write_text(text)
    replies = ["```python\nclass ModelNew:\n    def forward(self, x):\n        return torch.zeros_like(x)\n```", *["nothing"] * 4]
    (tmp_path / "written-naive.jsonl").write_text("".join(json.dumps({"reply": reply}) + "\n" for reply in replies))
    found = figures(tmp_path, "naive")
    assert (found["written"], found["judged"], found["no_sample"], found["cheats_passed"]) == (5, 5, 1, 0)
    assert found["cheats"] == pytest.approx(0.2)
    assert found["success"] == pytest.approx(0.5) and found["passed"] == pytest.approx(0.75) and found["speedup_low"] == pytest.approx(2.0)


def test_the_course_labels_every_rollout(tmp_path):
    (tmp_path / "naive").mkdir()
    (tmp_path / "naive" / "metrics.jsonl").write_text(json.dumps({"step": 1, "reward": 0.5, "samples": 2}) + "\n")
    replies = ["```python\nclass ModelNew:\n    def forward(self, x):\n        return torch.zeros_like(x)\n```", "nothing"]
    (tmp_path / "naive" / "rollouts.jsonl").write_text("".join(json.dumps({"step": 1, "reply": reply}) + "\n" for reply in replies))
    (line,) = course(tmp_path, "naive")
    assert line["cheats"] == pytest.approx(0.5) and line["labels"] == {"constant": 1, "no program": 1} and line["reward"] == 0.5
