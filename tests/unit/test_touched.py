"""The test files that are run for a commit, tested with made-up changes."""

from __future__ import annotations

import pytest

from tests.integrity.choosing import Changes
from tests.touched import ALWAYS, GUARDED, SHARED, of_a_commit
from webapp.environment import ROOT

FILES = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
FREE = {file for file in FILES if not any(file.startswith(f"{folder}/") for folder in GUARDED)}


def run_by(*changed: str) -> set[str]:
    return of_a_commit(FILES, Changes(frozenset(changed)))


def guarded(*folders: str) -> set[str]:
    return {file for file in FILES if any(file.startswith(f"{folder}/") for folder in folders)}


def test_all_that_is_named_is_there():
    assert set(ALWAYS) <= FILES
    assert all((ROOT / place).exists() for place in (*GUARDED, *SHARED, *(package for packages in GUARDED.values() for package in packages)))


def test_words_alone_run_what_each_commit_runs():
    assert run_by("docs/how-to/develop.md", "verifier/README.md", "bench/kernelbench.py") == FREE | set(ALWAYS)
    assert {file for file in FREE if not file.startswith(("tests/unit/", "tests/integrity/", "tests/gpu/"))} == set()


@pytest.mark.parametrize(
    ("file", "runs", "rests"),
    [
        ("verifier/timing/blocks.py", ("tests/integration/verifier", "tests/integration/agents", "tests/browser"), ()),
        ("compiler/graph/ir.py", ("tests/integration/agents", "tests/integration/processes"), ("tests/integration/verifier",)),
        ("agents/run.py", ("tests/integration/agents", "tests/integration/rl", "tests/browser"), ("tests/integration/verifier",)),
        ("webapp/runs/views_run.py", ("tests/browser", "tests/integration/diffs"), ("tests/integration/verifier", "tests/integration/agents")),
        ("templates/base.html", ("tests/browser", "tests/integration/processes"), ("tests/integration/verifier", "tests/integration/api")),
    ],
)
def test_a_package_runs_what_guards_it_and_nothing_below(file, runs, rests):
    found = run_by(file)
    assert guarded(*runs) <= found and found >= FREE
    assert found & guarded(*rests) <= set(ALWAYS)


@pytest.mark.parametrize("file", ["requirements.txt", "pyproject.toml", "tests/conftest.py", "tests/integration/processes/stack.py", "scripts/setup"])
def test_what_all_share_runs_everything(file):
    assert run_by(file) == FILES


def test_without_a_commit_to_compare_with_everything_runs():
    assert of_a_commit(FILES, Changes(None)) == FILES


def test_a_changed_file_of_tests_runs_and_a_cheat_chooses_for_itself():
    changed = "tests/integration/agents/test_solve.py"
    assert run_by(changed) == FREE | {*ALWAYS, changed}
    assert run_by("tests/integrity/cheats/70_lottery.py") == FREE | set(ALWAYS)
