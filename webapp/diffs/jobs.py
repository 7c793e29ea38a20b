"""The queue's task of measured diffs, done by verifiers beside their verifications. procrastinate finds this module by its name."""

from __future__ import annotations

from procrastinate.contrib.django import app
from procrastinate.job_context import JobContext

BEHIND_RUNS = -10  # a run that waits for a verdict comes first


@app.task(name="measure_hunk", pass_context=True)
async def measure_hunk(context: JobContext, hunk_id: int, attempt: int) -> None:
    """One hunk on this verifier's device."""
    from webapp.diffs.measuring import execute

    worker = context.additional_context["verifier"]
    await execute(worker.client, worker.row, hunk_id, attempt)


def enqueue_hunk(hunk: int, queue: str, attempt: int) -> None:
    measure_hunk.configure(queue=queue, priority=BEHIND_RUNS).defer(hunk_id=hunk, attempt=attempt)
