"""Finds runs that need a person's attention because they are waiting for a reply, have failed, or have a result that another run has beaten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Exists, FloatField, OuterRef, Q, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from webapp.accounts.models import Team, User
from webapp.runs.models import Dismissed, Run
from webapp.runs.pages.additions import WAITS

LATELY = timedelta(days=14)  # older failures and beaten results are not shown
MOST = 20  # runs shown per reason
# Reason -> (tone, sign, words), most urgent first.
REASONS = {
    "reply": ("warn", "!", "Needs a reply"),
    "failed": ("bad", "✕", "Failed"),
    "overtaken": ("info", "▽", "Overtaken"),
}


@dataclass(frozen=True)
class Asking:
    """A run, the reason why it needs attention, and the action that resolves it."""

    run: Run
    reason: str
    text: str
    url: str = ""  # path below the run's page where the person can answer

    @property
    def chip(self) -> dict[str, str]:
        tone, sign, word = REASONS[self.reason]
        return {"tone": tone, "sign": sign, "word": word}


def asking(team: Team, user: User) -> list[Asking]:
    """Return the team's runs that need attention and that the person has not dismissed, at most `MOST` per reason."""
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
    """Return the runs that are blocked until a person acts (`additions.WAITS`) or resumes them."""
    active = runs.exclude(state="finished").annotate(**{wait.name: wait.condition for wait in WAITS})
    blocked = Q(state="paused")
    for wait in WAITS:
        blocked |= Q(**{wait.name: True})
    return active.filter(blocked).order_by("-created_at")


def overtaken(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return successful runs whose results a later run has beaten.

    The later run has the same task and the same kind of device, and its whole interval lies above the earlier run's interval.
    """
    high = Cast(KeyTextTransform("high", "speedup"), FloatField())
    low = Cast(KeyTextTransform("low", "speedup"), FloatField())
    later = Run.objects.filter(
        task=OuterRef("task"), team=OuterRef("team"), device_kind=OuterRef("device_kind"), precision=OuterRef("precision"),
        archived_at=None, state="finished", outcome="improved", finished_at__gt=OuterRef("finished_at"),
    ).annotate(low=low)  # fmt: skip
    return runs.filter(outcome="improved").annotate(high=high).filter(Exists(later.filter(low__gt=OuterRef("high"))))


def _reply(run: Run) -> Asking:
    found = next((wait for wait in WAITS if vars(run)[wait.name]), None)  # annotated by `waiting`
    return Asking(run, "reply", found.text, found.url) if found else Asking(run, "reply", "It is paused until someone resumes it.")
