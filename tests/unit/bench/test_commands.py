"""Every command in bench/README.md starts as that page describes, and explains its purpose and its options."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
STARTER = Path(__file__).with_name("starter.py")
COMMAND = re.compile(r"python (bench/\w+\.py|-m bench\.[\w.]+)")
ACTS = re.compile(r"\{([\w,-]+)\} \.\.\.")  # as in `usage: sweep [-h] {run,merge,tables} ...`


class Said(NamedTuple):
    status: int
    out: str
    err: str


def commands() -> list[str]:
    return sorted(set(COMMAND.findall((ROOT / "bench" / "README.md").read_text())))


def helped(commands: list[str], folder: Path) -> dict[str, Said]:
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(STARTER), str(folder), *commands], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=120, check=True
    )
    statuses = json.loads(done.stdout)
    said = [Said(status, *((folder / f"{at}.{end}").read_text() for end in ("out", "err"))) for at, status in enumerate(statuses)]
    return dict(zip(commands, said, strict=True))


@pytest.mark.slow
def test_every_command_explains_itself(tmp_path):
    said = helped(commands(), tmp_path / "commands")
    acts = [f"{command} {act}" for command, done in said.items() if (found := ACTS.search(done.out)) for act in found[1].split(",")]
    said |= helped(acts, tmp_path / "acts")
    assert len(commands()) > 25
    assert "-m bench.sweep run" in said
    assert {command: (done.err or done.out)[-500:] for command, done in said.items() if done.status or "usage:" not in done.out} == {}


@pytest.mark.slow
def test_a_command_that_fails_is_seen(tmp_path):
    said = helped(["bench/no_such_command.py", "-m bench.no_such_command"], tmp_path / "commands")
    assert [done.status for done in said.values()] == [1, 1]
    assert all("no_such_command" in done.err for done in said.values())


def test_the_everyday_suite_asks_for_the_fastest_winner(monkeypatch):
    """The suite's options reach the sweep as options: none is mistaken for the KernelBench checkout."""
    from bench.everyday import __main__ as everyday
    from bench.sweep.__main__ import parser

    asked: list[str] = []
    monkeypatch.setattr(everyday, "sweep", lambda given: asked.extend(given) or 0)
    monkeypatch.setattr("sys.argv", ["everyday", "run", "--only", "12_paged", "--autotune-seconds", "0"])
    assert everyday.main() == 0
    arguments, rest = parser().parse_known_args(asked)
    assert arguments.checkout is None and arguments.winner == "fastest" and arguments.only == ["12_paged"] and rest == []
