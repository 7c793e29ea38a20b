"""Every command of bench/README.md starts where it is called as that page says."""

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


def commands() -> list[str]:
    return sorted(set(COMMAND.findall((ROOT / "bench" / "README.md").read_text())))


def helped(command: str) -> tuple[str, str]:
    """What it says where it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, *command.split(), "--help"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    return command, "" if done.returncode == 0 and "usage:" in done.stdout else (done.stderr or done.stdout)[-500:]


@pytest.mark.slow
def test_every_command_explains_itself():
    assert len(commands()) > 25
    with ThreadPoolExecutor(2) as pool:
        assert {command: said for command, said in pool.map(helped, commands()) if said} == {}
