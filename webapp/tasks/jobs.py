"""The queue task that tries out a source. A verifier runs it between two verifications."""

from __future__ import annotations

import uuid

from procrastinate.contrib.django import app
from procrastinate.job_context import JobContext

from webapp.runs.jobs import queue_for

SOON = 5  # priority: a person is waiting for it while typing, and it takes only seconds


@app.task(name="try_out", pass_context=True)
async def try_out(context: JobContext, try_out_id: str) -> None:
    from webapp.tasks.admitting import execute  # only verifiers run this; the web process, which enqueues, starts without it

    verifier = context.additional_context["verifier"]
    await execute(verifier.client, verifier.row.name, uuid.UUID(try_out_id))


def enqueue(try_out_id: uuid.UUID, device_kind: str) -> None:
    try_out.configure(queue=queue_for(device_kind), priority=SOON).defer(try_out_id=str(try_out_id))
