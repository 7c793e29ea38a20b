"""Recovers hunks whose verifier has died: either requests them again or gives up on them."""

from __future__ import annotations

from django.db import connection, transaction
from django.utils import timezone

from webapp.diffs.jobs import enqueue_hunk
from webapp.diffs.models import MeasuredHunk

MOST_ATTEMPTS = 3

# Finds hunks left unfinished by a dead verifier's job. `webapp.runs.workers.rescue` has already ended the job itself.
HUNKS_WITHOUT_JOB = """
SELECT h.id FROM diffs_measuredhunk h WHERE h.state IN ('queued', 'running') AND NOT EXISTS (
    SELECT FROM procrastinate_jobs j WHERE j.task_name = 'measure_hunk' AND j.status IN ('todo', 'doing') AND (j.args ->> 'hunk_id')::bigint = h.id)
FOR UPDATE OF h SKIP LOCKED
"""


def rescue_hunks() -> int:
    """Requeues hunks that no longer have a job. Several orchestrators may do this concurrently."""
    count = 0
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(HUNKS_WITHOUT_JOB)
            lost = [pk for (pk,) in cursor.fetchall()]
        for row in MeasuredHunk.objects.select_related("measured").filter(pk__in=lost):
            count += 1
            if row.attempt >= MOST_ATTEMPTS:
                row.state, row.status, row.stage, row.finished_at = "finished", "infrastructure_error", "", timezone.now()
                row.message = f"the verifier died {row.attempt} times over this job; its log says more"
            else:
                row.state, row.stage, row.started_at = "queued", "", None
                row.attempt += 1
                enqueue_hunk(row.pk, row.measured.queue, row.attempt)
            row.save()
    return count
