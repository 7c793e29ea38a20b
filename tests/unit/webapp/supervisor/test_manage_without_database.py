"""The message of a management command if no database responds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from webapp.environment import ROOT


@pytest.mark.slow  # the pool waits ten seconds for a server; both processes wait at the same time
def test_one_sentence_instead_of_a_traceback(tmp_path):
    started = {
        named: signin_link(tmp_path / named, url) for url, named in (("", "make run"), ("postgresql://nobody@127.0.0.1:1/none", "DATABASE_URL"))
    }
    for named, process in started.items():
        out, said = process.communicate(timeout=120)
        assert process.returncode == 1 and out == ""
        assert said.startswith("manage.py: the database does not answer") and named in said
        assert "Traceback" not in said


def signin_link(folder: Path, url: str) -> subprocess.Popen[str]:
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")}
    environment |= {"DATA_DIR": str(folder)} | ({"DATABASE_URL": url} if url else {})
    command = [sys.executable, str(ROOT / "manage.py"), "signin_link"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
