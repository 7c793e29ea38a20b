"""The two sides of a diff as written in a URL: "task" (the reference), "4" (a candidate of the run), "<run>:4" and "<run>:task" (in another run)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest
from django.urls import reverse

from verifier.source import sha256
from webapp.runs import artefacts
from webapp.runs.access import run_for
from webapp.runs.models import Candidate, Run


@dataclass(frozen=True)
class Side:
    key: str  # as written in the URL
    run: Run
    candidate: Candidate | None  # None: the run's task
    source: str
    foreign: bool  # belongs to a run other than the page's

    @property
    def sha(self) -> str:
        return self.candidate.sha if self.candidate else sha256(self.source)

    @property
    def speedup(self) -> dict[str, Any] | None:
        """Returns the speedup over eager, in the form that the `speedup` tag expects."""
        verification = self.candidate.verification if self.candidate else None
        if verification is None or verification.speedup is None or verification.status != "passed":
            return None
        return {"ratio": verification.speedup, "low": verification.speedup_low, "high": verification.speedup_high}

    @property
    def label(self) -> str:
        own = f"candidate {self.candidate.number}" if self.candidate else "the reference"
        return f"{own} of {self.run.title}" if self.foreign else own

    @property
    def href(self) -> str:
        if self.candidate:
            return reverse("runs:candidate", args=[self.run.pk, self.candidate.number])
        return reverse("runs:task_source", args=[self.run.pk])


def side_of(request: HttpRequest, run: Run, key: str) -> Side:
    """Returns the side with this key. Raises `Http404` if the key does not exist or the run belongs to another team."""
    other, _, own = key.rpartition(":")
    foreign = bool(other) and other != str(run.pk)
    if foreign:
        try:
            run, _ = run_for(request, uuid.UUID(other))
        except ValueError:
            raise Http404("no such run") from None
    if own == "task":
        return Side(key, run, None, run.task.source, foreign)
    if not own.isdecimal() or len(own) > 9:
        raise Http404("a side is the word task, or the number of a candidate")
    return side_of_candidate(run, int(own), key, foreign)


def side_of_candidate(run: Run, number: int, key: str = "", foreign: bool = False) -> Side:
    candidate = Candidate.objects.select_related("program", "verification").filter(run=run, number=number).first()
    if candidate is None:
        raise Http404("no such candidate")
    return Side(key or str(number), run, candidate, artefacts.read(candidate.program).decode("utf-8", "replace"), foreign)
