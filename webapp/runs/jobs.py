"""The queue's tasks. procrastinate finds this module by name. Only the processes that execute a task import its implementation."""

from __future__ import annotations

import re
import uuid

from django.db import transaction
from procrastinate.contrib.django import app
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.job_context import JobContext

ORCHESTRATOR = "orchestrator"


@app.task(name="run_workflow", queue=ORCHESTRATOR, pass_context=True)
async def run_workflow(context: JobContext, run_id: str) -> None:
    """Execute a run to its end, from the start or from where it stopped. The lock keeps out a second orchestrator, and the lease epoch keeps a stale
    one from writing."""
    await context.additional_context["orchestrator"].execute(uuid.UUID(run_id))


@app.task(name="verify", pass_context=True)
async def verify(context: JobContext, verification_id: str, attempt: int, epoch: int) -> None:
    """Run one verification on this verifier's device. The verifier receives only these three arguments."""
    await context.additional_context["verifier"].execute(uuid.UUID(verification_id), attempt, epoch)


def enqueue_run(run: uuid.UUID) -> None:
    """Queue the run for an orchestrator in the caller's transaction, unless it is already queued."""
    lock = f"run:{run}"
    try:
        with transaction.atomic():
            run_workflow.configure(lock=lock, queueing_lock=lock).defer(run_id=str(run))
    except AlreadyEnqueued:
        pass


def enqueue_verification(verification: uuid.UUID, queue: str, attempt: int, epoch: int) -> None:
    verify.configure(queue=queue).defer(verification_id=str(verification), attempt=attempt, epoch=epoch)


def queue_for(device: str, model: str = "") -> str:
    """Return `verify.cpu`, `verify.cuda` (any GPU), `verify.cuda:1` (that GPU) or `verify.cuda:model-nvidia-h200` (any GPU of that model)."""
    return f"verify.{device}:{named(model)}" if model else f"verify.{device}"


def queues_of(device: str, model: str) -> list[str]:
    """Return the queues that a verifier for this device listens to."""
    kind = device.partition(":")[0]
    return list(dict.fromkeys([queue_for(device), queue_for(kind), queue_for(kind, model)]))


def named(model: str) -> str:
    """Return the part of a queue name that identifies the device model, in a form that cannot be mistaken for a device number."""
    return f"model-{re.sub(r'[^a-z0-9]+', '-', model.lower()).strip('-')}"[:60]
