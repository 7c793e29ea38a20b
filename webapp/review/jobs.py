"""Sends notifications by mail from the orchestrator, so a slow mail server cannot delay a page."""

from __future__ import annotations

import os

from django.core.mail import EmailMessage
from procrastinate.contrib.django import app

from webapp.review.kinds import sentence
from webapp.review.models import Notification
from webapp.runs.jobs import ORCHESTRATOR


@app.task(name="mail_notification", queue=ORCHESTRATOR, retry=3)
def mail_notification(notification: int) -> None:
    """Sends one notification by mail. Does nothing if it has already been read or deleted."""
    found = Notification.objects.select_related("user", "run", "thread", "comment", "verdict", "actor").filter(pk=notification, read_at=None).first()
    if found is None or not found.user.email:
        return
    lines = [sentence(found), "", found.comment.text if found.comment else found.verdict.reason if found.verdict else ""]
    if base := os.environ.get("BASE_URL"):  # the public address, as in sign-in links
        lines += ["", f"{base}/notifications/{found.pk}/"]
    EmailMessage(subject=f"{found.run.title}: {sentence(found)}"[:180].replace("\n", " "), body="\n".join(lines), to=[found.user.email]).send()
