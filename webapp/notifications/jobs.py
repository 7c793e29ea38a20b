"""The queue task that sends a message from the orchestrator, so that a slow receiver cannot delay a page or a run."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from procrastinate.contrib.django import app

from webapp.notifications import posting
from webapp.notifications.messages import body
from webapp.notifications.models import FAILED, SENT, WAITING, Delivery
from webapp.runs.jobs import ORCHESTRATOR

BACK_OFF = (10, 60, 300, 1800, 7200)  # seconds before each retry; after the last retry, the message is marked as failed
KEPT = 50  # number of messages listed per hook


@app.task(name="deliver_hook", queue=ORCHESTRATOR)
def deliver_hook(delivery: int) -> None:
    """Makes one delivery attempt and, if it fails, queues the next one. Does nothing if the message has already been sent or its hook has been
    disabled."""
    found = Delivery.objects.select_related("hook").filter(pk=delivery, state=WAITING).first()
    if found is None:
        return
    now = timezone.now()
    found.attempts += 1
    if not found.hook.active and found.event != "test":
        found.state, found.said, found.ended_at, found.next_at = FAILED, "The webhook was switched off.", now, None
    else:
        try:
            content, headers = body(found.hook, found.message)
            found.said, found.state, found.ended_at, found.next_at = posting.post(found.hook.url, content, headers), SENT, timezone.now(), None
        except posting.PostFailed as failure:
            found.said = str(failure)[:300]
            again = None if failure.final or found.attempts > len(BACK_OFF) else BACK_OFF[found.attempts - 1]
            found.next_at = now + timedelta(seconds=again) if again is not None else None
            if again is None:
                found.state, found.ended_at = FAILED, timezone.now()
    found.save()
    if found.next_at is not None:
        deliver_hook.configure(schedule_at=found.next_at).defer(delivery=found.pk)
    old = Delivery.objects.filter(hook=found.hook).exclude(state=WAITING).values_list("pk", flat=True)[KEPT:]
    Delivery.objects.filter(pk__in=list(old)).delete()
