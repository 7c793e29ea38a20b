"""What the queue does not do by itself: find jobs whose worker died, and runs and verifications that have no job."""

from __future__ import annotations

import json
import uuid

from django.db import connection, transaction

from webapp.runs.jobs import enqueue_run
from webapp.runs.workers.fairness import FORGET
from webapp.runs.workers.handover import Claim, ClaimLost, queue_again, verifier_died

STALLED = """
SELECT j.id, j.task_name, j.args::text FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
WHERE j.status = 'doing' AND (w.id IS NULL OR w.last_heartbeat < now() - make_interval(secs => %s))
ORDER BY j.id LIMIT 1 FOR UPDATE OF j SKIP LOCKED
"""

# A paused run has none until a person resumes or cancels it; where that was said, and the job for it was lost, it stands among the last events.
RUNS_WITHOUT_JOB = """
SELECT r.id FROM runs_run r WHERE r.state <> 'finished' AND NOT r.imported
AND (r.state <> 'paused' OR EXISTS (SELECT FROM runs_event e WHERE e.run_id = r.id AND e.seq > r.last_seq - 20 AND e.kind = 'control.requested'
    AND e.payload ->> 'action' IN ('resume', 'cancel')
    AND NOT EXISTS (SELECT FROM runs_event p WHERE p.run_id = r.id AND p.seq > e.seq AND p.kind = 'run.paused')))
AND NOT EXISTS (SELECT FROM procrastinate_jobs j WHERE j.lock = 'run:' || r.id AND j.status IN ('todo', 'doing'))
"""

VERIFICATIONS_WITHOUT_JOB = """
SELECT v.id, v.attempt, v.lease_epoch FROM runs_verification v JOIN runs_run r ON r.id = v.run_id
WHERE v.state <> 'finished' AND r.state <> 'finished' AND NOT r.imported AND NOT EXISTS (
    SELECT FROM procrastinate_jobs j
    WHERE j.task_name = 'verify' AND j.status IN ('todo', 'doing') AND j.args ->> 'verification_id' = v.id::text)
"""


def rescue(stalled_after: float) -> int:
    """One round; returns how many things were taken up again. Several orchestrators may do this at the same time."""
    count = 0
    while _rescue_one(stalled_after):
        count += 1
    with connection.cursor() as cursor:
        cursor.execute(FORGET)
    for (run,) in _rows(RUNS_WITHOUT_JOB):
        enqueue_run(run)
        count += 1
    for verification, attempt, epoch in _rows(VERIFICATIONS_WITHOUT_JOB):
        try:
            queue_again(Claim(verification, attempt, epoch), attempt=attempt, reason="the verifier stopped")
            count += 1
        except ClaimLost:
            pass
    return count


def _rescue_one(stalled_after: float) -> bool:
    """End one job of a dead worker, and see to it that somebody else does its work."""
    with transaction.atomic():
        dead = _rows(STALLED, [stalled_after])
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
                pass  # finished already, or not wanted any more
        return True


def _rows(statement: str, arguments: list | None = None) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return cursor.fetchall()
