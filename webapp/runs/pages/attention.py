"""Runs that ask for a person: those that wait for a reply, those that failed, those whose result another run has overtaken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Exists, FloatField, OuterRef, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from webapp.accounts.models import Team, User
from webapp.llm.models import Letter
from webapp.runs.models import RATIO, Dismissed, Run

LATELY = timedelta(days=14)  # what failed or was overtaken longer ago is history
MOST = 20  # of a reason
# Reason -> (tone, sign, words), the most urgent first.
REASONS = {
    "reply": ("warn", "!", "Needs a reply"),
    "failed": ("bad", "✕", "Failed"),
    "overtaken": ("info", "▽", "Overtaken"),
}


@dataclass(frozen=True)
class Asking:
    """A run with the reason why it asks, in words and as what can be done about it."""

    run: Run
    reason: str
    text: str
    url: str = ""  # below the run's page: where the answer is given

    @property
    def chip(self) -> dict[str, str]:
        tone, sign, word = REASONS[self.reason]
        return {"tone": tone, "sign": sign, "word": word}


def asking(team: Team, user: User) -> list[Asking]:
    """Everything of the team that the person has not dismissed; at most `MOST` of each reason."""
    open_runs = Run.objects.filter(team=team, archived_at=None).select_related("task", "created_by")

    def fresh(reason: str, runs: QuerySet[Run]) -> Iterable[Run]:
        return runs.exclude(Exists(Dismissed.objects.filter(user=user, run=OuterRef("pk"), reason=reason)))[:MOST]

    found = [_reply(run) for run in fresh("reply", waiting(open_runs))]
    lately = open_runs.filter(state="finished", finished_at__gt=timezone.now() - LATELY, imported=False).order_by("-finished_at")
    for run in fresh("failed", lately.filter(outcome="failed")):
        found.append(Asking(run, "failed", run.reason or "It ended without a program that passes."))
    for run in fresh("overtaken", overtaken(lately)):
        found.append(Asking(run, "overtaken", "Another run of this task is faster now, beyond the interval of this one."))
    return found


def waiting(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Those that stand still until a person answers a model's request, or resumes them."""
    letters = Letter.objects.filter(run=OuterRef("pk"), reply=None, withdrawn_at=None)
    active = runs.exclude(state="finished").annotate(letter=Exists(letters))
    return (active.filter(letter=True) | active.filter(state="paused")).order_by("-created_at")


def overtaken(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Those that found something, where a later run of the same task on the same kind of device is faster: its whole interval lies above theirs."""
    high = Cast(KeyTextTransform("high", "speedup"), FloatField())
    low = Cast(KeyTextTransform("low", "speedup"), FloatField())
    later = Run.objects.filter(
        task=OuterRef("task"), team=OuterRef("team"), device_kind=OuterRef("device_kind"), precision=OuterRef("precision"),
        archived_at=None, state="finished", outcome="improved", finished_at__gt=OuterRef("finished_at"),
    ).annotate(low=low)  # fmt: skip
    return runs.filter(outcome="improved").annotate(ratio=RATIO, high=high).filter(Exists(later.filter(low__gt=OuterRef("high"))))


def _reply(run: Run) -> Asking:
    if run.letter:
        return Asking(run, "reply", "A model's request waits for a person.", "reply")
    return Asking(run, "reply", "It is paused until someone resumes it.")
