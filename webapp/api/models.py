"""Idempotency keys, which ensure that a creating call sent twice creates only one object."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class IdempotencyKey(models.Model):
    """The response to a call with this `Idempotency-Key`, kept for a day (`webapp/api/calls/idempotency.py`)."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    key = models.CharField(max_length=200)
    request = models.CharField(max_length=64)  # hash of the method, path and body; using the same key for a different request is an error
    status = models.SmallIntegerField(default=0)
    answer = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user", "key"], name="one_answer_a_key")]
