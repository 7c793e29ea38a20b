"""Recovers what the queue does not: jobs whose worker has died, and runs and verifications without a job."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.db import connection, transaction

from webapp.runs.jobs import enqueue_run
from webapp.runs.workers.fairness import FORGET
from webapp.runs.workers.handover import Claim, ClaimLost, queue_again, verifier_died
from webapp.sql import statements

SQL = statements(__file__)


def rescue(stalled_after: float) -> int:
    """Run one round and return the number of items recovered. Several orchestrators can run this concurrently."""
    count = 0
    while _rescue_one(stalled_after):
        count += 1
    with connection.cursor() as cursor:
        cursor.execute(FORGET)
    for (run,) in _rows(SQL["runs_without_job"]):
        enqueue_run(run)
        count += 1
    for verification, attempt, epoch in _rows(SQL["verifications_without_job"]):
        try:
            queue_again(Claim(verification, attempt, epoch), attempt=attempt, reason="the verifier stopped")
            count += 1
        except ClaimLost:
            pass
    return count


def _rescue_one(stalled_after: float) -> bool:
    """End one job of a dead worker and give its work to another worker."""
    with transaction.atomic():
        dead = _rows(SQL["stalled"], [stalled_after])
        if not dead:
            return False
        job, task, text = dead[0]
        _rows("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", [job])
        if task == "verify":
            arguments = json.loads(text)
            claim = Claim(uuid.UUID(arguments["verification_id"]), arguments["attempt"], arguments["epoch"])
            try:
                with transaction.atomic():
                    verifier_died(claim)
            except ClaimLost:
                pass  # already finished, or no longer needed
        return True


def _rows(statement: str, arguments: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return list(cursor.fetchall())
