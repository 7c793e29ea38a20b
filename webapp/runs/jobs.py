"""The queue's tasks. procrastinate finds this module by its name; what the tasks do is imported only by the processes that do it."""

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
    """Run or resume a run to its end. Its lock keeps a second orchestrator out; its lease epoch keeps a lost one from writing."""
    await context.additional_context["orchestrator"].execute(uuid.UUID(run_id))


@app.task(name="verify", pass_context=True)
async def verify(context: JobContext, verification_id: str, attempt: int, epoch: int) -> None:
    """One verification on this verifier's device. The three arguments are the whole hand-over."""
    await context.additional_context["verifier"].execute(uuid.UUID(verification_id), attempt, epoch)


def enqueue_run(run: uuid.UUID) -> None:
    """Have an orchestrator take the run, in the caller's transaction; nothing where it is queued already."""
    lock = f"run:{run}"
    try:
        with transaction.atomic():
            run_workflow.configure(lock=lock, queueing_lock=lock).defer(run_id=str(run))
    except AlreadyEnqueued:
        pass


def enqueue_verification(verification: uuid.UUID, queue: str, attempt: int, epoch: int) -> None:
    verify.configure(queue=queue).defer(verification_id=str(verification), attempt=attempt, epoch=epoch)


def queue_for(device: str, model: str = "") -> str:
    """`verify.cpu`, `verify.cuda` for any GPU, `verify.cuda:1` for that one, `verify.cuda:model-nvidia-h200` for any of that model."""
    return f"verify.{device}:{named(model)}" if model else f"verify.{device}"


def queues_of(device: str, model: str) -> list[str]:
    """What a verifier for this device listens to."""
    kind = device.partition(":")[0]
    return list(dict.fromkeys([queue_for(device), queue_for(kind), queue_for(kind, model)]))


def named(model: str) -> str:
    """A device's model as part of a queue's name, which no number of a device can be."""
    return f"model-{re.sub(r'[^a-z0-9]+', '-', model.lower()).strip('-')}"[:60]
