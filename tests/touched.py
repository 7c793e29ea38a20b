"""Leaves out the tests of processes and pages of which a commit touched nothing, where `pytest --touched` says so (`make test`, `make test-all`).

A folder of tests guards packages. Its tests run where a commit changed one of them, or anything that all tests share; a changed file of tests runs
in any case, and so do a few files that each commit runs (`ALWAYS`). Unit tests always run, and the corpus of cheats chooses for itself
(tests/integrity/choosing.py, which also says what a commit is held against). Without `--touched` everything runs: `make test-all TOUCHED=`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePosixPath

import pytest

from tests.integrity.choosing import Changes, ask_git, changes_of
from webapp.environment import ROOT

PRODUCT = ("agents", "compiler", "stitchwork", "verifier", "webapp")
PAGES = ("frontend", "static", "templates")

# By the layers that import-linter holds (pyproject.toml): what stands above a package cannot break its tests.
GUARDED: dict[str, tuple[str, ...]] = {
    "tests/integration/verifier": ("verifier",),
    "tests/integration/diffs": ("verifier", "webapp"),
    "tests/integration/agents": ("agents", "compiler", "verifier"),
    "tests/integration/rl": ("agents", "compiler", "verifier", "webapp"),
    "tests/integration/api": PRODUCT,
    "tests/integration/database": PRODUCT,
    "tests/integration/processes": (*PRODUCT, *PAGES),
    "tests/browser": (*PRODUCT, *PAGES),
}

# A verdict of each kind, the start and the stop of an installation, and every page once.
ALWAYS = (
    "tests/integration/verifier/test_verdicts.py",
    "tests/integration/processes/test_life.py",
    "tests/browser/test_every_page.py",
)

# What may break any test. A helper among the tests counts as such, whoever imports it.
SHARED = (".ci", "Makefile", "examples", "manage.py", "package-lock.json", "package.json", "pyproject.toml", "scripts")
CORPUS = ("tests/integrity/cheats", "tests/integrity/honest", "tests/integrity/tasks")


def of_a_commit(files: Iterable[str], changes: Changes) -> set[str]:
    """Returns those of `files`, files of tests as paths of the repository, that a commit with `changes` runs."""
    files = set(files)
    if changes.files is None or any(_shared(file) for file in changes.files):
        return files
    touched = {PurePosixPath(file) for file in changes.files if not file.endswith(".md")}
    return {file for file in files if file in ALWAYS or PurePosixPath(file) in touched or _guards_one(file, touched)}


def _shared(file: str) -> bool:
    path = PurePosixPath(file)
    if path.parts[0] == "tests":
        return not path.name.startswith("test_") and not any(path.is_relative_to(folder) for folder in CORPUS)
    return file.startswith("requirements") or any(path.is_relative_to(shared) for shared in SHARED)


def _guards_one(file: str, touched: set[PurePosixPath]) -> bool:
    packages = next((packages for folder, packages in GUARDED.items() if PurePosixPath(file).is_relative_to(folder)), None)
    return packages is None or any(path.is_relative_to(package) for package in packages for path in touched)


def changes() -> Changes:
    return changes_of(ask_git, os.environ.get("CORPUS_BASE", ""))


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {item: item.path.relative_to(ROOT).as_posix() for item in items}
    running = of_a_commit(places.values(), changes())
    left_out = [item for item in items if places[item] not in running]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if places[item] in running]


def header() -> str:
    """Returns what rests, in a line for the head of the report: with several workers nothing else says it."""
    tried = {folder: f"{folder}/test_any.py" for folder in GUARDED}
    running = of_a_commit(tried.values(), changes())
    resting = [folder for folder, file in tried.items() if file not in running]
    return f"touched: {', '.join(resting) or 'nothing'} left out, but for changed files and those of each commit (TOUCHED= runs all)"
