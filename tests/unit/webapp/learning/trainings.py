"""A training run's folder in the trainer's format, written without a trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.webapp.cast import PROGRAM, SOURCE

SITTING = {"began": "2026-11-27T01:00:00+00:00", "step": 0, "ended": "2026-11-27T02:00:00+00:00", "why": ""}


def metrics(step: int, **changed: Any) -> dict[str, Any]:
    told = {"step": step, "reward": 0.1 * step, "success": 0.5, "hacks": 0.25, "speedup": 1.5, "own_share": 0.75, "entropy": 2.0, "length": 300.0}
    told |= {"loss": -0.1, "norm": 0.5, "clipped": 0.0, "kl": 0.0, "seconds": 60.0, "samples": 4, "no_sample": 0}
    told |= {"parts": {"base": 1.1, "factor": 1.2}, "rubric": {"speed": 4.0}, "verdicts": {"passed": 2, "wrong_result": 2}}
    return told | changed


def rollout(step: int, group: int = 0, turn: int = 0, episode: str = "e", program: str = PROGRAM, **changed: Any) -> dict[str, Any]:
    reply = f"Here it is.\n```python\n{program}```\n"
    score = {"skill": "write", "status": "passed", "low": 1.4, "own_share": 0.9, "class": "custom", "base": 1.6, "factor": 1.1, "episode": episode}
    score |= {"rubric": {"speed": 4, "own": 5}, "findings": ["note:library"]}
    line = {"step": step, "group": group, "turn": turn, "problem": "softmax", "reply": reply, "program": [22, 22 + len(program)], "reward": 1.7}
    return {**line, "advantage": 0.2, "tokens": 120, "feedback": "It passed.", "score": score} | changed


def write(folder: Path, *, steps: int = 3, team: str = "", rollouts: list[dict[str, Any]] | None = None, **about: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    said = {"version": 1, "kind": "grpo", "model": "coder-7b", "device": "cuda:0", "team": team, "config": {"steps": steps}, "sittings": [SITTING]}
    (folder / "run.json").write_text(json.dumps(said | about))
    lines(folder / "metrics.jsonl", [metrics(step) for step in range(1, steps + 1)])
    drawn = [rollout(step, task=SOURCE, before="") for step in range(1, steps + 1)] if rollouts is None else rollouts
    lines(folder / "rollouts.jsonl", drawn)
    return folder


def lines(path: Path, values: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
