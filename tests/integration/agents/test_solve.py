"""Whole runs on this machine's CPU with the real compiler, the real verifier and real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.journal import read_trace
from agents.projection import project

ROOT = Path(__file__).resolve().parents[3]
WITHIN = 800  # seconds; mostly needed if other work keeps the cores busy
SOFTMAX = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x * 0.5, dim=-1)


def get_inputs():
    return [torch.rand(256, 2048)]


def get_init_inputs():
    return []
"""


def start(*arguments: str, data_dir: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "agents", "solve", *arguments, "--data-dir", str(data_dir)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "softmax.py"
    path.write_text(SOFTMAX)
    return path


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("verifier")


@pytest.mark.slow
@pytest.mark.timed  # if another test runs at the same time, the result may correctly be "this host is busy"
@pytest.mark.timeout(1800)
def test_softmax_from_the_command_line_killed_in_the_middle_continues_and_verifies_nothing_twice(task, tmp_path, data_dir):
    out = tmp_path / "out"
    process = start(str(task), "--out", str(out), "--budget-candidates", "1", data_dir=data_dir)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        trace = out / "trace.jsonl"
        if trace.exists() and trace.read_text().partition('"candidate.proposed"')[2].count('"verification.stage"') >= 3:
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    _, progress = process.communicate()
    assert "planner:" in progress
    before, _ = read_trace(out)
    assert project(before).state == "running"
    again = start(str(task), "--out", str(out), "--resume", data_dir=data_dir)
    printed, progress = again.communicate(timeout=WITHIN)
    assert again.returncode == 0, progress
    events, artefacts = read_trace(out)
    assert events[: len(before)] == before
    finished = [e.payload["key"] for e in events if e.kind == "verification.finished"]
    assert len(finished) == len(set(finished)), "no verdict twice"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["outcome"] in ("improved", "matched"), progress
    best = summary["candidates"][summary["best"] - 1]
    assert best["status"] == "passed" and best["tier"] == "full" and best["program_class"] == "custom"
    assert best["best_baseline"] and best["timeline"] and summary["reference_timeline"]
    assert "stitch_build" in (out / "best.py").read_text()
    assert summary["outcome"].replace("_", " ") in printed and "verifier:" in progress
    kept = dict(artefacts)
    assert project(events).outcome == summary["outcome"]
    assert kept[best["timeline"]["sha"]].startswith(b"STWTL1\n")
    assert {e.kind for e in events} >= {"plan.proposed", "candidate.proposed", "diagnosis.made", "decision.made", "profile.attached"}


def test_a_task_that_does_not_parse_is_refused_with_its_line(tmp_path, data_dir):
    path = tmp_path / "broken.py"
    path.write_text(SOFTMAX.replace("dim=-1)", "dim=-1"))
    process = start(str(path), "--out", str(tmp_path / "out"), data_dir=data_dir)
    printed, progress = process.communicate(timeout=120)
    assert process.returncode == 1 and "failed" in printed
    assert "line 11" in progress and "Traceback" not in progress
