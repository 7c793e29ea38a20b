"""The queue task for measured diffs, which verifiers run in addition to verifications. procrastinate finds this module by its name."""

from __future__ import annotations

from procrastinate.contrib.django import app
from procrastinate.job_context import JobContext

BEHIND_RUNS = -10  # runs waiting for a verdict come first


@app.task(name="measure_hunk", pass_context=True)
async def measure_hunk(context: JobContext, hunk_id: int, attempt: int) -> None:
    """Measures one hunk on this verifier's device."""
    from webapp.diffs.measuring import execute  # only verifiers run this; the web process, which enqueues, starts without it

    worker = context.additional_context["verifier"]
    await execute(worker.client, worker.row, hunk_id, attempt)


def enqueue_hunk(hunk: int, queue: str, attempt: int) -> None:
    measure_hunk.configure(queue=queue, priority=BEHIND_RUNS).defer(hunk_id=hunk, attempt=attempt)
