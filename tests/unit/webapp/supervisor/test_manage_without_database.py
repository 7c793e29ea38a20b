"""What a management command says where no database answers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from webapp.environment import ROOT


@pytest.mark.slow  # the pool waits ten seconds for a server
@pytest.mark.parametrize(("url", "named"), [("", "make run"), ("postgresql://nobody@127.0.0.1:1/none", "DATABASE_URL")])
def test_one_sentence_instead_of_a_traceback(tmp_path, url, named):
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")}
    environment |= {"DATA_DIR": str(tmp_path)} | ({"DATABASE_URL": url} if url else {})
    done = subprocess.run([sys.executable, str(ROOT / "manage.py"), "signin_link"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("manage.py: the database does not answer") and named in done.stderr
    assert "Traceback" not in done.stderr
