"""The reports of set-up and continuous integration about a host without a sandbox."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from webapp.environment import ROOT


@pytest.fixture
def host(tmp_path) -> tuple[Path, dict[str, str]]:
    """Returns a checkout after set-up, on a host with a shell and g++ but without bubblewrap."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "cksum", "sed", "cat", "g++"):
        (tools / name).symlink_to(shutil.which(name) or "/bin/true")
    (tools / "sudo").write_text(f"#!/bin/sh\ntouch {tmp_path}/sudo-was-run\n")
    (tools / "sudo").chmod(0o755)
    checkout = tmp_path / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    for name in ("scripts/setup", ".ci/run", "requirements.txt", "pyproject.toml", "verifier"):
        (checkout / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, checkout / name)
    (checkout / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "stitchwork"):
        (checkout / ".venv" / "bin" / name).symlink_to((ROOT / ".venv/bin/python").resolve())
    environment = {name: value for name, value in os.environ.items() if name != "SANDBOX"} | {"PATH": str(tools)}
    stamps = {"requirements.txt.installed": "cksum <requirements.txt", "stitchwork.installed": SUM}
    for name, command in stamps.items():
        made = subprocess.run(["/bin/sh", "-c", command], cwd=checkout, env=environment, capture_output=True, text=True, check=True)
        (checkout / ".venv" / name).write_text(made.stdout)
    return checkout, environment


SUM = r"sed -n '/^\[build-system\]/,/^\[tool.ruff\]/p' pyproject.toml | cksum"


def test_setup_prints_how_to_get_a_sandbox_and_goes_on(host, tmp_path):
    checkout, environment = host
    done = subprocess.run(["/bin/sh", "scripts/setup"], cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert re.search(r"setup: there is no sandbox, .* waits in the queue; .*bubblewrap is not installed: apt-get install bubblewrap", done.stderr)
    assert not (tmp_path / "sudo-was-run").exists()


def test_ci_fails_without_bubblewrap_instead_of_skipping(host):
    checkout, environment = host
    (checkout / "scripts" / "test-packages").write_text("#!/bin/sh\n")
    (checkout / "scripts" / "test-packages").chmod(0o755)
    done = subprocess.run(["/bin/sh", ".ci/run"], cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "ci: FAILED: bubblewrap is missing" in done.stderr and "make" not in done.stderr
