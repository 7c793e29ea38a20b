"""The sides of a comparison. A side is a run, represented by its best program, or a single candidate. In the URL, a side is `with=<run>` or
`with=<run>:<number>`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.http import Http404, HttpRequest
from django.urls import reverse
from pydantic import ValidationError

from agents.settings import Settings
from verifier.jobs import Profile
from verifier.report import Baseline, Report
from webapp.runs import artefacts
from webapp.runs.access import run_for
from webapp.runs.models import Candidate, Run
from webapp.runs.pages.evidence import chosen_verification, evidence_of
from webapp.runs.pages.views_candidate import stored_profile

MOST = 6
LETTERS = "ABCDEF"


@dataclass
class Side:
    letter: str
    key: str  # as written in the URL
    run: Run
    candidate: Candidate | None  # None if the run has no program that passed
    whole: bool  # a run rather than one of its candidates
    report: Report | None = None
    profile: Profile | None = None
    tried: list[Candidate] = field(default_factory=list)  # all candidates of the run

    @property
    def name(self) -> str:
        own = f"candidate {self.candidate.number}" if self.candidate else "no program"
        return self.run.title if self.whole else f"{self.run.title}, {own}"

    @property
    def href(self) -> str:
        if self.candidate is not None:
            return reverse("runs:candidate", args=[self.run.pk, self.candidate.number])
        return reverse("runs:run", args=[self.run.pk])

    @property
    def diff_key(self) -> str:
        """Returns the side as written in the URL of a diff."""
        return f"{self.run.pk}:{self.candidate.number}" if self.candidate else ""

    def against(self, baseline: Baseline) -> dict[str, Any] | None:
        found = self.report.against(baseline) if self.report else None
        return found.speedup.model_dump() if found else None

    @cached_property
    def best_baseline(self) -> tuple[str, dict[str, Any]] | None:
        """Returns the baseline over which the program gains least, and the speedup over it."""
        timing = self.report.timing if self.report else None
        found = (
            min(timing.comparisons, key=lambda one: one.speedup.ratio, default=None)
            if timing and self.report and self.report.tier == "full"
            else None
        )
        return (found.baseline, found.speedup.model_dump()) if found else None

    @property
    def program_ms(self) -> float | None:
        return self.report.timing.program_ms if self.report and self.report.timing else None

    def settings(self) -> dict[str, Any]:
        """Returns the settings with flattened keys, such as "budget.candidates"."""
        run = self.run
        own = {"workflow": run.workflow, "device": run.device_kind, "precision": run.precision}
        return dict(flat(Settings().model_dump(mode="json"))) | own | dict(flat(run.settings or {}))  # an older run has fewer settings


def flat(value: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, inner in value.items():
        found += flat(inner, f"{before}{key}.") if isinstance(inner, dict) else [(f"{before}{key}", inner)]
    return found


def sides_of(request: HttpRequest) -> list[Side]:
    """Returns the sides in the order of the URL, without duplicates. Raises `Http404` for a side that does not exist or that the requester may not
    see."""
    keys = list(dict.fromkeys(key for key in request.GET.getlist("with") if key))[:MOST]
    return [side_of(request, key, LETTERS[at]) for at, key in enumerate(keys)]


def side_of(request: HttpRequest, key: str, letter: str) -> Side:
    name, _, number = key.partition(":")
    try:
        run, _ = run_for(request, uuid.UUID(name))
    except ValueError:
        raise Http404("a side is a run, or a run with the number of a candidate") from None
    if number and (not number.isdecimal() or len(number) > 9):
        raise Http404("no such candidate")
    wanted = int(number) if number else run.best_candidate
    tried = list(run.candidates.select_related("verification", "program", "timeline", "profile").order_by("number"))
    candidate = next((one for one in tried if one.number == wanted), None)
    if number and candidate is None:
        raise Http404("no such candidate")
    side = Side(letter, key, run, candidate, whole=not number, tried=tried)
    if candidate is not None:
        chosen, _ = chosen_verification(run, candidate, None)
        side.report = evidence_of(chosen).report if chosen else None
        side.profile = profile_of(candidate)
    return side


def profile_of(candidate: Candidate) -> Profile | None:
    if candidate.profile is None:
        return None
    try:
        return stored_profile(artefacts.read(candidate.profile))
    except ValidationError:
        return None  # if another version wrote the events, the report's own kernels are still shown
