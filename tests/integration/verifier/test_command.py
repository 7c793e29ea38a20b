"""`python -m verifier check`: a judge for one job that starts everything concurrently and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from verifier_bench import PROGRAM, TASK

ROOT = Path(__file__).resolve().parents[3]


def test_a_wrong_program_from_a_cold_start(tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "program.py").write_text(PROGRAM.replace("dim=-1", "dim=0"))
    command = [sys.executable, "-m", "verifier", "check", str(tmp_path / "task.py"), str(tmp_path / "program.py"), "--json"]
    done = subprocess.run([*command, "--data-dir", str(tmp_path / "data")], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["status"] == "wrong_result" and "task inputs 1" in report["message"]
    assert [stage["name"] for stage in report["stages"]] == ["startup", "static", "build", "correctness"]
    assert report["stages"][0]["seconds"] > 0 and "torch at " in report["stages"][0]["detail"]
    assert not commands_with(str(tmp_path))  # the judge's interpreter has the data folder among its arguments, and the parties are its children


def commands_with(text: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found
