"""Tells of what happened to runs: the page and mail by webapp/review/notices.py, webhooks here. Called in the transaction of what happened."""

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
from webapp.notifications.models import ENDED, OVERTAKEN, VERDICT, Delivery, Hook
from webapp.notifications.overtaking import overtaken_by
from webapp.review import notices
from webapp.review.listing import sentence
from webapp.review.models import Notification, Verdict
from webapp.review.signals import verdict_given
from webapp.runs import signals
from webapp.runs.models import Run
from webapp.runs.pages.headline import OUTCOMES, headline_of

log = logging.getLogger(__name__)
TEST = "test"


@receiver(signals.run_ended)
def run_ended(run: uuid.UUID | str, **_: Any) -> None:
    """Tells people of a run's end, which was just written. Errors are logged: they must not keep a run from ending."""
    try:
        with transaction.atomic():
            _told_of_end(Run.objects.select_related("task", "team").get(pk=run))
    except DatabaseError:
        log.exception("nobody was told that run %s ended", run)


def _told_of_end(run: Run) -> None:
    if run.imported:
        return
    if run.outcome != "cancelled" and not ArenaRun.objects.filter(run=run).exists():  # an arena's runs are told of by the arena
        _tell(run, ENDED, ended_detail(run), [run.created_by_id])
    result = Result.objects.select_related("provenance").filter(run=run).first()
    for found in overtaken_by(result) if result is not None else []:
        detail = {"baseline": found.baseline, "baseline_ms": found.baseline_ms, "program_ms": found.program_ms}
        _tell(found.run, OVERTAKEN, detail, [found.run.created_by_id])


def ended_detail(run: Run) -> dict[str, Any]:
    """The outcome, and the headline's figure where there is one."""
    found = headline_of(run)
    detail: dict[str, Any] = {"outcome": run.outcome, "says": OUTCOMES[found.outcome][2] if found.outcome else ""}
    if found.first is not None:
        detail |= {"speedup": found.first.ratio, "low": found.first.low, "high": found.first.high, "against": found.against}
    return detail


@receiver(verdict_given)
def verdict_changed(verdict: Verdict, told: Iterable[int], **_: Any) -> None:
    """`told`: the people whom the page tells."""
    detail = {"candidate": verdict.candidate, "verdict": verdict.value, "reason": verdict.reason[:500]}
    about = Notification(kind=Notification.VERDICT, run=verdict.run, verdict=verdict, actor=verdict.by)
    send(VERDICT, verdict.run, sentence(about), detail, told)


def _tell(run: Run, event: str, detail: dict[str, Any], people: list[int | None]) -> None:
    told = [person for person in people if person is not None]
    notices.of_event(run, event, detail, told)
    send(event, run, sentence(Notification(kind=event, run=run, detail=detail)), detail, told)


def send(event: str, run: Run, text: str, detail: dict[str, Any], people: Iterable[int]) -> None:
    """Queues a message to each hook of the team, and to those of the people, that wants this event."""
    hooks = Hook.objects.filter(team=run.team_id, active=True)
    told = set(people)
    for hook in hooks:
        if event in hook.events and (hook.person_id is None or hook.person_id in told):
            queue(hook, event, Message(event=event, text=text, title=run.title, url=address(run), at=_now(), run=str(run.pk), detail=detail))


def test(hook: Hook) -> Delivery:
    """A message that shows whether the hook works."""
    return queue(
        hook, TEST, Message(event=TEST, text="This is a test message from Stitchwork.", title="", url=os.environ.get("BASE_URL", ""), at=_now())
    )


def queue(hook: Hook, event: str, message: Message) -> Delivery:
    made = Delivery.objects.create(hook=hook, event=event, message=message)
    jobs.deliver_hook.defer(delivery=made.pk)
    return made


def address(run: Run) -> str:
    """Where people look at the run; empty where nobody said at which address this installation is reached."""
    base = os.environ.get("BASE_URL", "").rstrip("/")
    return f"{base}/runs/{run.pk}/" if base else ""


def _now() -> str:
    return timezone.now().isoformat(timespec="seconds")
