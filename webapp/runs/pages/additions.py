"""Additions by other apps to the pages of runs.

Each app registers its additions when Django starts (`AppConfig.ready`), so `webapp.runs` depends on none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists
from django.http import HttpRequest

from verifier.report import Report
from webapp.runs.models import Candidate, Run


@dataclass(frozen=True)
class Wait:
    """A reason why a run waits for a person."""

    name: str  # of the annotation; unique among all waits
    condition: Exists  # over `OuterRef("pk")`, the run
    text: str
    url: str  # path below the run's page where the person can act


@dataclass(frozen=True)
class Shown:
    """The candidate that a page shows, with what the page has already read."""

    request: HttpRequest
    run: Run
    candidate: Candidate
    report: Report | None  # of the chosen verification
    source: str


WAITS: list[Wait] = []
TABS: dict[str, Callable[[Shown], dict[str, Any]]] = {}  # name of a candidate's tab -> the context that its template needs
CONFIG: dict[str, Callable[[Run], Any]] = {}  # name in the configuration of a run's script -> its value
