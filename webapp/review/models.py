"""A team's review of a run: comment threads on places in the run, verdicts on its candidates, share links, and notifications.

The trace belongs to the engine, and a review never changes it. A run's review has its own sequence (`Desk.seq`), and every change takes the next
number. A page that has everything up to number n can ask for later changes and misses nothing.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.utils import timezone

if TYPE_CHECKING:
    from webapp.accounts.models import User

PERSON = settings.AUTH_USER_MODEL


class Desk(models.Model):
    """The review of one run, with the number of its latest change."""

    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, primary_key=True, related_name="desk")
    seq = models.BigIntegerField(default=0)


class Thread(models.Model):
    """A thread of comments on one place. `anchor` (webapp/review/anchors.py) names the place. `kind` and `candidate` are copied from it for lists to
    filter by."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="threads")
    kind = models.CharField(max_length=10)  # event, line, range, candidate, run
    candidate = models.IntegerField(null=True)
    anchor = models.JSONField()
    seq = models.BigIntegerField()  # number of its latest change
    created_by = models.ForeignKey(PERSON, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    last_at = models.DateTimeField(default=timezone.now)  # time of its latest comment
    resolved_by = models.ForeignKey(PERSON, on_delete=models.SET_NULL, null=True, related_name="+")
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["run", "seq"]),
            models.Index(fields=["team", "resolved_at", "-last_at"]),
        ]


class Comment(models.Model):
    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(PERSON, on_delete=models.SET_NULL, null=True, related_name="+")
    text = models.TextField()  # Markdown; empty after deletion
    mentions: models.ManyToManyField[User, models.Model] = models.ManyToManyField(PERSON, related_name="mentioned_in")
    seq = models.BigIntegerField()  # the review's number when this was written; comments numbered above the reader's mark are unread
    at = models.DateTimeField(default=timezone.now)
    edited_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["author", "-at"])]


class Revision(models.Model):
    """The text of a comment before it was edited or deleted."""

    comment = models.ForeignKey(Comment, on_delete=models.CASCADE, related_name="revisions")
    text = models.TextField()
    until = models.DateTimeField(default=timezone.now)


class Verdict(models.Model):
    """A person's judgement of a candidate. Each judgement or withdrawal adds a row. The newest row applies, unless it is a withdrawal."""

    ACCEPTED, QUESTIONED, HACK, RETRACTED, WITHDRAWN = "accepted", "questioned", "hack", "retracted", "withdrawn"
    VALUES = [ACCEPTED, QUESTIONED, HACK, RETRACTED, WITHDRAWN]

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="verdicts")
    candidate = models.IntegerField()  # the candidate's number, because candidate rows are projections and can be rebuilt
    value = models.CharField(max_length=12, choices=[(value, value) for value in VALUES])
    reason = models.TextField(blank=True)
    by = models.ForeignKey(PERSON, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(default=timezone.now)
    seq = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["run", "candidate", "-id"])]


class Share(models.Model):
    """A link that gives anybody who has it access to one run. The token is the id, signed with the installation's key, so nothing secret is
    stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="shares")
    place = models.CharField(max_length=500, blank=True)  # relative to the run's URL, such as "candidates/4/?tab=diff#L41"
    comments = models.BooleanField(default=False)  # whether guests can read the team's comments on the run
    created_by = models.ForeignKey(PERSON, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    opened = models.IntegerField(default=0)
    last_opened_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["run", "-created_at"])]

    @property
    def state(self) -> str:
        """Returns "open", "expired" or "revoked"."""
        if self.revoked_at is not None:
            return "revoked"
        return "open" if self.expires_at > timezone.now() else "expired"


class Notification(models.Model):
    """A notification for one person."""

    user = models.ForeignKey(PERSON, on_delete=models.CASCADE, related_name="notifications")
    kind = models.CharField(max_length=10)  # a name in webapp/review/kinds.py
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE)
    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, null=True)
    comment = models.ForeignKey(Comment, on_delete=models.CASCADE, null=True)
    verdict = models.ForeignKey(Verdict, on_delete=models.CASCADE, null=True)
    actor = models.ForeignKey(PERSON, on_delete=models.SET_NULL, null=True, related_name="+")
    detail = models.JSONField(default=dict)  # for kinds without an actor: what happened
    at = models.DateTimeField(default=timezone.now)
    read_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["user", "-at"]),
            models.Index(fields=["user"], condition=models.Q(read_at=None), name="review_unread"),
        ]


class Wishes(models.Model):
    """A person's notification preferences. By default, everything is shown on the page and nothing is sent by mail."""

    user = models.OneToOneField(PERSON, on_delete=models.CASCADE, primary_key=True, related_name="wishes")
    muted = models.JSONField(default=list)  # kinds of notifications
    mail = models.BooleanField(default=False)
    unmailed = models.JSONField(default=list)  # kinds that are shown on the page but not sent by mail


class ReadMark(models.Model):
    """A person's reading position in a thread."""

    user = models.ForeignKey(PERSON, on_delete=models.CASCADE)
    thread = models.ForeignKey(Thread, on_delete=models.CASCADE)
    seq = models.BigIntegerField()  # comments by others with a higher number are unread

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "thread"], name="one_mark_a_reader")]


class Presence(models.Model):
    """A viewer of a run. Each open page has one row, which is refreshed while the page stays open."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE)
    user = models.ForeignKey(PERSON, on_delete=models.CASCADE)
    place = models.CharField(max_length=60, blank=True)
    seen_at = models.DateTimeField(default=timezone.now)
