"""The verifier as a library: installed by pip into a separate virtual environment, and used from a folder that is not a checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from verifier_bench import PROGRAM, TASK

from verifier import CannotCheck, check
from verifier.checking import default_data_dir

ROOT = Path(__file__).resolve().parents[3]
USE = """
import json, sys
from pathlib import Path
import verifier
from verifier import check

report = check(Path("task.py"), "wrong.py")
again = verifier.check(Path("task.py").read_text(), Path("wrong.py").read_text())
print(json.dumps({
    "status": [report.status, again.status],
    "from": verifier.__file__,
    "typed": (Path(verifier.__file__).parent / "py.typed").exists(),
    "web": sorted({"django", "httpx", "agents", "compiler"} & set(sys.modules)),
}))
"""
WRONG = PROGRAM.replace("* self.scale", "* self.scale * 1.01")


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory) -> Path:
    """Returns the Python of a fresh virtual environment in which pip has built and installed this verifier. It borrows torch, numpy and pydantic."""
    folder = tmp_path_factory.mktemp("library")
    source = folder / "source"
    shutil.copytree(ROOT / "verifier", source / "verifier", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "stitchwork", source / "stitchwork", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", source)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    found = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True)
    Path(found.stdout.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO", "DATA_DIR"))}
    return subprocess.run([str(python), *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=200)


@pytest.mark.slow
def test_installed_it_checks_and_needs_no_django(interpreter, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "wrong.py").write_text(WRONG)
    done = run(interpreter, tmp_path, "-c", USE)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["status"] == ["wrong_result", "wrong_result"] and said["typed"] and said["web"] == []
    assert Path(said["from"]).is_relative_to(interpreter.parents[1])
    assert (tmp_path / "cache" / "stitchwork" / "verifier").is_dir()
    assert run(interpreter, tmp_path, "-m", "verifier", "check", "--help").returncode == 0


def test_what_cannot_be_checked_is_said(tmp_path):
    with pytest.raises(CannotCheck, match="there is no device 'tpu'; use cpu or cuda:0"):
        check(TASK, PROGRAM, device="tpu", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.py"):
        check("nowhere.py", PROGRAM, data_dir=tmp_path)


def test_its_data_lie_where_the_host_says(monkeypatch, tmp_path):
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    assert default_data_dir() == tmp_path / "verifier"
    monkeypatch.delenv("DATA_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / "stitchwork" / "verifier"
