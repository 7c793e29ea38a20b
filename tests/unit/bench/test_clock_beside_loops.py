"""The choice of stored programs that bench/clock_beside_loops.py measures, and the aggregation of its results."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from bench.clock_beside_loops import chosen, line, loops, only, pairs_of, summary

TASK = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)
    def forward(self, x):
        return self.layer(x)
def get_init_inputs():
    return [4]
def get_inputs():
    return [torch.ones(2, 4)]
"""


def pair(program: float, cold: float, eager: float = 100.0) -> dict:
    off = {"program": program / cold - 1, "eager": eager / 100.0 - 1}
    return {"status": "passed", "cold": {"program": cold, "eager": 100.0}, "verifier": {"program": program}, "off": off}


def test_the_shortest_come_first_and_the_others_are_drawn_by_a_seed():
    def row(ms: float, **facts) -> dict:
        return {"status": "passed", "flags": [], "program_ms": ms, **facts}

    rows = {f"level1/{number} fp32-strict": row(40.0 - number) for number in range(30)}
    rows |= {"level1/x bf16": row(0.1), "level1/y fp32-strict": row(0.1, flags=["trivial"]), "level1/z fp32-strict": row(0.1, status="failed")}
    stored = [key for key in rows if key != "level1/29 fp32-strict"]
    found = chosen(rows, stored, 3, 5, 0)
    assert found[:3] == [f"level1/{number} fp32-strict" for number in (28, 27, 26)] and len(set(found)) == 8
    assert found[3:] == chosen(rows, stored, 3, 20, 0)[3:8] != chosen(rows, stored, 3, 5, 1)[3:]


def test_short_calls_have_a_wider_bar():
    rows = {"a": pair(108.0, 100.0), "b": pair(25.0, 20.0), "c": pair(40.0, 31.0, 95.0), "d": {"status": "inconclusive", "message": "busy"}}
    found = summary(rows)
    assert (found["pairs"], found["measured"], found["program"]["within"], found["program"]["below_30_us"]) == (4, 3, 2, 1)
    assert found["program"]["outside"] == {"c": 0.29} and found["eager"]["within"] == 3
    assert found["not_measured"] == {"d": "inconclusive: busy"}
    assert "off +8.0%" in line("a", rows["a"]) and line("d", rows["d"]) == "d: inconclusive: busy"


def test_a_plain_loop_sees_one_gpu_alone(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert only("cuda:3") == {"CUDA_VISIBLE_DEVICES": "3"} and only("cpu") == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert only("cuda:1") == {"CUDA_VISIBLE_DEVICES": "6"}


def test_plain_loops_time_program_and_eager(tmp_path, monkeypatch):
    for name, text in (("a.task.py", TASK), ("a.program.py", TASK.replace("Model", "ModelNew"))):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("bench.clock_beside_loops.FLUSH_BYTES", 1024)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)  # restored at the end: the loops turn it off
    (name, (task, program)), *rest = pairs_of(Namespace(kernelbench=None, folder=[tmp_path]), tmp_path).items()
    assert (name, rest) == ("a", [])
    found = loops(task, program, "cpu")
    assert set(found) == {"program", "eager"} and all(value > 0 for side in found.values() for value in side.values())
    with pytest.raises(ValueError, match="FOLDER of pairs"):
        pairs_of(Namespace(kernelbench=None, folder=[]), tmp_path)
