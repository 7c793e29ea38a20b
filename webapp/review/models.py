"""What a team says about a run: threads of comments at a place in it, verdicts on its candidates, share links, and who is told of what.

The trace is the engine's and stays as it is. A run's review has a sequence of its own (`Desk.seq`): whatever changes takes the next number, so
that a page which knows "everything up to n" asks for what came after, and misses nothing.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

PERSON = settings.AUTH_USER_MODEL


class Desk(models.Model):
    """The review of one run: the number of its latest change."""

    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, primary_key=True, related_name="desk")
    seq = models.BigIntegerField(default=0)


class Thread(models.Model):
    """Comments on one place. `anchor` (webapp/review/anchors.py) names the place; `kind` and `candidate` are its parts that lists filter by."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="threads")
    kind = models.CharField(max_length=10)  # event, line, range, candidate, run
    candidate = models.IntegerField(null=True)
    anchor = models.JSONField()
    seq = models.BigIntegerField()  # of its latest change
    created_by = models.ForeignKey(PERSON, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    last_at = models.DateTimeField(default=timezone.now)  # of its latest comment
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
    text = models.TextField()  # Markdown; empty once it was deleted
    mentions = models.ManyToManyField(PERSON, related_name="mentioned_in")
    seq = models.BigIntegerField()  # the run's number when it was written: what somebody has not read is above their mark
    at = models.DateTimeField(default=timezone.now)
    edited_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["author", "-at"])]


class Revision(models.Model):
    """What a comment said before it was edited or deleted."""

    comment = models.ForeignKey(Comment, on_delete=models.CASCADE, related_name="revisions")
    text = models.TextField()
    until = models.DateTimeField(default=timezone.now)


class Verdict(models.Model):
    """What a person judged of a candidate, one row an act. The newest one stands, unless it takes the one before it back."""

    ACCEPTED, QUESTIONED, HACK, RETRACTED, WITHDRAWN = "accepted", "questioned", "hack", "retracted", "withdrawn"
    VALUES = [ACCEPTED, QUESTIONED, HACK, RETRACTED, WITHDRAWN]

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="verdicts")
    candidate = models.IntegerField()  # its number: rows of candidates are projections, and can be written anew
    value = models.CharField(max_length=12, choices=[(value, value) for value in VALUES])
    reason = models.TextField(blank=True)
    by = models.ForeignKey(PERSON, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(default=timezone.now)
    seq = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["run", "candidate", "-id"])]


class Share(models.Model):
    """A link that shows one run to whoever has it. The token is the id, signed with the installation's key: nothing secret is stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="shares")
    place = models.CharField(max_length=500, blank=True)  # below the run's address: "candidates/4/?tab=diff#L41"
    comments = models.BooleanField(default=False)  # whether guests read what the team says about the run
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
        """open, expired, revoked"""
        if self.revoked_at is not None:
            return "revoked"
        return "open" if self.expires_at > timezone.now() else "expired"


class Notification(models.Model):
    """Something that one person should know of."""

    MENTION, REPLY, THREAD, VERDICT, RESOLVED = "mention", "reply", "thread", "verdict", "resolved"
    ENDED, OVERTAKEN = "ended", "overtaken"  # nobody did it: `detail` says what happened (webapp/notifications)

    user = models.ForeignKey(PERSON, on_delete=models.CASCADE, related_name="notifications")
    kind = models.CharField(max_length=10)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE)
    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, null=True)
    comment = models.ForeignKey(Comment, on_delete=models.CASCADE, null=True)
    verdict = models.ForeignKey(Verdict, on_delete=models.CASCADE, null=True)
    actor = models.ForeignKey(PERSON, on_delete=models.SET_NULL, null=True, related_name="+")
    detail = models.JSONField(default=dict)
    at = models.DateTimeField(default=timezone.now)
    read_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["user", "-at"]),
            models.Index(fields=["user"], condition=models.Q(read_at=None), name="review_unread"),
        ]


class Wishes(models.Model):
    """What a person wants to be told of. Who never chose wants all of it on the page, and no mail."""

    user = models.OneToOneField(PERSON, on_delete=models.CASCADE, primary_key=True, related_name="wishes")
    muted = models.JSONField(default=list)  # kinds of notifications
    mail = models.BooleanField(default=False)
    unmailed = models.JSONField(default=list)  # kinds that stay on the page where the others are mailed


class ReadMark(models.Model):
    """How far a person has read a thread."""

    user = models.ForeignKey(PERSON, on_delete=models.CASCADE)
    thread = models.ForeignKey(Thread, on_delete=models.CASCADE)
    seq = models.BigIntegerField()  # comments of others with a greater one are new to this person

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "thread"], name="one_mark_a_reader")]


class Presence(models.Model):
    """Who is viewing a run now, one row a page; written again while the page is open."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE)
    user = models.ForeignKey(PERSON, on_delete=models.CASCADE)
    place = models.CharField(max_length=60, blank=True)
    seen_at = models.DateTimeField(default=timezone.now)
