"""The commands as people type them: a server process, and a training run against it that is interrupted and resumed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from agents.rl.records import read_lines
from agents.rl.scratch import Size, TinyPolicy
from webapp.settings import ROOT

RL = [sys.executable, "-m", "agents.rl"]
pytestmark = pytest.mark.timeout(200)


@pytest.fixture
def address(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*RL, "serve", "--tasks", "examples", "--port", str(port), "--data-dir", str(tmp_path / "cache")]
    environment = {**os.environ, "STITCHWORK_RL_TOKEN": "secret"}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        try:
            assert httpx.get(f"http://127.0.0.1:{port}/health").json()["status"] == "healthy"
            break
        except httpx.HTTPError:
            assert server.poll() is None, server.stderr.read()
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) in (0, -signal.SIGTERM)


def run(*arguments: object, token: str = "secret") -> subprocess.CompletedProcess:
    environment = {**os.environ, "STITCHWORK_RL_TOKEN": token, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*RL, *map(str, arguments)], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_a_training_against_the_server(address, tmp_path):
    TinyPolicy(Size(width=16, layers=1, heads=2, longest=4096)).save(tmp_path / "begun")
    command = ["train", "--server", address, "--out", tmp_path / "run", "--start", tmp_path / "begun", "--rank", 2, "--group", 2, "--prompts", 2]
    command += ["--most-tokens", 8, "--save-every", 1, "--json"]
    first = run(*command, "--steps", 1)
    assert first.returncode == 0 and "step 1" in first.stderr, first.stderr
    assert json.loads(run(*command, "--steps", 2).stdout)["step"] == 2
    lines = read_lines(tmp_path / "run" / "rollouts.jsonl")
    assert [line["step"] for line in lines] == [1] * 4 + [2] * 4 and all(line["score"]["gate"] == "rejected" for line in lines)
    merged = run("merge", "--checkpoint", tmp_path / "run", "--start", tmp_path / "begun", "--out", tmp_path / "whole")
    assert merged.returncode == 0 and "step 2" in merged.stdout
    said = json.loads((tmp_path / "whole" / "stitchwork.json").read_text())
    assert f'model = "{tmp_path}/whole@{said["revision"]}"' in merged.stdout and said["revision"].endswith("-2") and said["kind"] == "grpo"
    refused = run(*command[:-1], "--steps", 3, token="wrong")
    assert refused.returncode == 2 and "token" in refused.stderr


def test_help_loads_no_torch():
    code = "import sys; from agents.rl.cli import main\ntry: main(['train', '--help'])\nexcept SystemExit: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip().endswith("False"), done.stdout[-200:]
