"""Sends notifications about run events, in the same transaction as the event. This module covers webhooks. webapp/review/notices.py covers the page
and mail."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable
from typing import Any

from django.db import DatabaseError, transaction
from django.dispatch import receiver
from django.utils import timezone

from webapp.arena.models import ArenaRun
from webapp.leaderboard.models import Result
from webapp.notifications import jobs
from webapp.notifications.messages import Message
from webapp.notifications.models import Delivery, Hook
from webapp.notifications.overtaking import overtaken_by
from webapp.review import notices
from webapp.review.kinds import ENDED, OVERTAKEN, PAUSED, VERDICT, Kind, sentence
from webapp.review.models import Notification, Verdict
from webapp.review.notices import verdict_given
from webapp.runs import signals
from webapp.runs.headline import OUTCOMES, headline_of
from webapp.runs.models import Run

log = logging.getLogger(__name__)
TEST = "test"


@receiver(signals.run_ended)
def run_ended(run: uuid.UUID | str, **_: Any) -> None:
    """Notifies people that a run has just ended. Errors are only logged, because they must not keep a run from ending."""
    try:
        with transaction.atomic():
            _told_of_end(Run.objects.select_related("task", "team").get(pk=run))
    except DatabaseError:
        log.exception("nobody was told that run %s ended", run)


@receiver(signals.run_paused)
def run_paused(run: uuid.UUID | str, reason: str, **_: Any) -> None:
    """Notifies the person who started a run that it is waiting for a person, unless an earlier such notification is unread. Errors are only
    logged."""
    try:
        with transaction.atomic():
            paused = Run.objects.select_related("team").get(pk=run)
            if not paused.imported and not Notification.objects.filter(run=paused, kind=PAUSED.name, read_at=None).exists():
                _tell(paused, PAUSED, {"reason": reason[:500]}, [paused.created_by_id])
    except DatabaseError:
        log.exception("nobody was told that run %s waits", run)


def _told_of_end(run: Run) -> None:
    if run.imported:
        return
    if run.outcome != "cancelled" and not ArenaRun.objects.filter(run=run).exists():  # the arena reports on its own runs
        _tell(run, ENDED, ended_detail(run), [run.created_by_id])
    result = Result.objects.select_related("provenance").filter(run=run).first()
    for found in overtaken_by(result) if result is not None else []:
        detail = {"baseline": found.baseline, "baseline_ms": found.baseline_ms, "program_ms": found.program_ms}
        _tell(found.run, OVERTAKEN, detail, [found.run.created_by_id])


def ended_detail(run: Run) -> dict[str, Any]:
    """Returns the outcome, with the headline figure if there is one."""
    found = headline_of(run)
    detail: dict[str, Any] = {"outcome": run.outcome, "says": OUTCOMES[found.outcome][2] if found.outcome else ""}
    if found.first is not None:
        detail |= {"speedup": found.first.ratio, "low": found.first.low, "high": found.first.high, "against": found.against}
    return detail


@receiver(verdict_given)
def verdict_changed(verdict: Verdict, told: Iterable[int], **_: Any) -> None:
    """Notifies the webhooks of a changed verdict. `told` lists the people who are notified on the page."""
    detail = {"candidate": verdict.candidate, "verdict": verdict.value, "reason": verdict.reason[:500]}
    about = Notification(kind=VERDICT.name, run=verdict.run, verdict=verdict, actor=verdict.by)
    send(VERDICT.name, verdict.run, sentence(about), detail, told)


def _tell(run: Run, event: Kind, detail: dict[str, Any], people: list[int | None]) -> None:
    told = [person for person in people if person is not None]
    notices.of_event(run, event, detail, told)
    send(event.name, run, sentence(Notification(kind=event.name, run=run, detail=detail)), detail, told)


def send(event: str, run: Run, text: str, detail: dict[str, Any], people: Iterable[int]) -> None:
    """Queues a message for each hook that belongs to the team or to one of the given people and subscribes to this event."""
    hooks = Hook.objects.filter(team=run.team_id, active=True)
    told = set(people)
    for hook in hooks:
        if event in hook.events and (hook.person_id is None or hook.person_id in told):
            queue(hook, event, Message(event=event, text=text, title=run.title, url=address(run), at=_now(), run=str(run.pk), detail=detail))


def test(hook: Hook) -> Delivery:
    """Sends a message that tests the hook."""
    return queue(
        hook, TEST, Message(event=TEST, text="This is a test message from Stitchwork.", title="", url=os.environ.get("BASE_URL", ""), at=_now())
    )


def queue(hook: Hook, event: str, message: Message) -> Delivery:
    made = Delivery.objects.create(hook=hook, event=event, message=message)
    jobs.deliver_hook.defer(delivery=made.pk)
    return made


def address(run: Run) -> str:
    """Returns the URL of the run's page, or "" if the installation's public address is not configured."""
    base = os.environ.get("BASE_URL", "").rstrip("/")
    return f"{base}/runs/{run.pk}/" if base else ""


def _now() -> str:
    return timezone.now().isoformat(timespec="seconds")
