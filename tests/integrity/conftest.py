"""Writes the verdicts on the corpus, combined from all workers, as JSON to the file that CORPUS_RESULT names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.integrity.corpus import summary

ROWS: list[dict] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        ROWS.extend(value for name, value in report.user_properties if name == "corpus")


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = os.environ.get("CORPUS_RESULT")
    if path and ROWS and not hasattr(session.config, "workerinput"):
        earlier = json.loads(Path(path).read_text())["rows"] if Path(path).exists() else []
        Path(path).write_text(json.dumps(summary(merged(earlier, ROWS)), indent=1) + "\n")


def merged(earlier: list[dict], rows: list[dict]) -> list[dict]:
    """Merges the parts of a run into one file, because those that need a quiet clock run separately; the most recent outcome of a case counts."""
    found = {(row["kind"], row["name"], row["form"], row["device"]): row for row in [*earlier, *rows]}
    return [found[key] for key in sorted(found)]
