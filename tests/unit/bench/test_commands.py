"""Every command of bench/README.md starts where it is called as that page says, and explains itself and what it can be told to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMMAND = re.compile(r"python (bench/\w+\.py|-m bench\.[\w.]+)")
ACTS = re.compile(r"\{([\w,-]+)\} \.\.\.")  # of `usage: sweep [-h] {run,merge,tables} ...`


def commands() -> list[str]:
    return sorted(set(COMMAND.findall((ROOT / "bench" / "README.md").read_text())))


def helped(command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([sys.executable, *command.split(), "--help"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_every_command_explains_itself():
    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(commands(), pool.map(helped, commands()), strict=True))
        acts = [f"{command} {act}" for command, done in said.items() if (found := ACTS.search(done.stdout)) for act in found[1].split(",")]
        said |= dict(zip(acts, pool.map(helped, acts), strict=True))
    assert len(commands()) > 25
    assert "-m bench.sweep run" in said
    assert {command: (done.stderr or done.stdout)[-500:] for command, done in said.items() if done.returncode or "usage:" not in done.stdout} == {}
