"""The queue's tasks. procrastinate finds this module by its name; what the tasks do is imported only by the processes that do it."""

from __future__ import annotations

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


def queue_for(device: str) -> str:
    """`verify.cpu`, `verify.cuda` for any GPU, `verify.cuda:1` for that one."""
    return f"verify.{device}"


def queues_of(device: str) -> list[str]:
    """What a verifier for this device listens to."""
    return list(dict.fromkeys([queue_for(device), queue_for(device.partition(":")[0])]))
