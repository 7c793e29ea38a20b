"""A program verified from a terminal, with only real components: the command, Daphne, the queue, the orchestrator, and a verifier with its
compilers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.integration.processes.stack import Stack
from tests.integration.processes.test_kills import RIGHT, TASK, WRONG
from webapp.environment import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ISSUE = """
from webapp.accounts import tokens
from webapp.accounts.first_user import first_user
user = first_user()
print(tokens.issue(user, user.personal_team, "ci", ["verify"])[1])
"""


@pytest.fixture
def verify(stack: Stack, tmp_path):
    """Runs `stitchwork verify` for a program and the task, and returns (exit code, result)."""
    token = stack.manage("shell", "-c", ISSUE).strip().splitlines()[-1]
    (tmp_path / "task.py").write_text(TASK)

    def run(program: str, *arguments: str) -> tuple[int, dict]:
        (tmp_path / "mine.py").write_text(program)
        done = subprocess.run(
            [sys.executable, "-m", "stitchwork", "verify", "task.py", "mine.py", "--tier", "quick", "--json", *arguments],
            env={"STITCHWORK_URL": stack.base, "STITCHWORK_TOKEN": token, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
            cwd=tmp_path, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.stdout, f"{done.stderr}\n{stack.logs()}"
        return done.returncode, json.loads(done.stdout)

    return run


def test_right_wrong_and_too_slow(verify):
    code, result = verify(WRONG)
    assert (code, result["verdict"]) == (1, "wrong_result") and result["failed_trials"] and result["failed_trials"][0]["error"]
    code, result = verify(RIGHT, "--min-speedup", "50")
    assert (code, result["verdict"], result["fast_enough"]) == (1, "passed", False)
    assert result["speedup"]["baseline"] == "eager" and result["device_name"] and result["tier"] == "quick"
