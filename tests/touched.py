"""With `pytest --touched` (`make test`, `make test-all`), leaves out the tests of processes and pages that a commit did not touch.

Each folder of tests guards certain packages. Its tests run if a commit changed one of those packages, or anything that all tests share; a changed
test file always runs, and so do a few files that run for every commit (`ALWAYS`). Unit tests always run, and the corpus of cheats makes its own
choice (tests/integrity/choosing.py, which also says what a commit is compared with). Without `--touched`, everything runs: `make test-all TOUCHED=`.
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

# Follows the layers that import-linter enforces (pyproject.toml): packages above a package cannot break its tests.
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

# One verdict of each kind, the start and stop of an installation, and every page once.
ALWAYS = (
    "tests/integration/verifier/test_verdicts.py",
    "tests/integration/processes/test_life.py",
    "tests/browser/test_every_page.py",
)

# Anything that may break any test. A helper among the tests counts as such, whichever test imports it.
SHARED = (".ci", "Makefile", "examples", "manage.py", "package-lock.json", "package.json", "pyproject.toml", "scripts")
CORPUS = ("tests/integrity/cheats", "tests/integrity/honest", "tests/integrity/tasks")


def of_a_commit(files: Iterable[str], changes: Changes) -> set[str]:
    """Returns the subset of `files` (test files, as repository paths) to run for a commit with these `changes`."""
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
    """Returns a line for the report's header that lists what was left out: with several workers, it is reported nowhere else."""
    tried = {folder: f"{folder}/test_any.py" for folder in GUARDED}
    running = of_a_commit(tried.values(), changes())
    resting = [folder for folder, file in tried.items() if file not in running]
    return f"touched: {', '.join(resting) or 'nothing'} left out, but for changed files and those of each commit (TOUCHED= runs all)"
