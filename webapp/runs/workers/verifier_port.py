"""Gives the engine access to the verifiers through the queue."""

from __future__ import annotations

import uuid
from typing import Any

from verifier.jobs import Job, JobResult
from webapp.database import in_thread
from webapp.fleet.models import Device
from webapp.runs.jobs import queue_for
from webapp.runs.live.hub import hub
from webapp.runs.models import Verification
from webapp.runs.workers import handover
from webapp.runs.workers.journal import DatabaseJournal, stops_without_database


class QueuedVerifier:
    """Implements `agents.ports.VerifierPort` with the queue.

    It requests a job once per key and waits for `verification.finished`, even if verifiers die along the way.
    """

    def __init__(self, journal: DatabaseJournal, device: str):
        self.journal, self.device = journal, device

    @stops_without_database
    async def run(self, job: Job, *, key: str, span: str, candidate: str | int | None = None) -> JobResult:
        run = uuid.UUID(self.journal.run)
        number = int(candidate) if candidate is not None else None
        async with hub().follow(self.journal.run) as follower:
            queue = await in_thread(self._queue)(run)
            verification = await in_thread(handover.ask)(run, job, key=key, span=span, candidate=number, queue=queue, epoch=self.journal.epoch)
            while True:
                await follower.woken()
                result = await in_thread(handover.result_of)(verification)
                if result is not None:
                    return result

    def _queue(self, run: uuid.UUID) -> str:
        """Return the queue for the run's next job.

        A run that may use any GPU gets a free GPU of the same model as its first job used, because its figures are compared with those of that job.
        """
        return queue_for(self.device, model_met(run) if self.device == "cuda" else "")

    async def describe(self) -> dict[str, Any]:
        """Return the announcement of the verifier that will probably take the job."""
        return await in_thread(self._describe)()

    def _describe(self) -> dict[str, Any]:
        kind = self.device.partition(":")[0]
        devices = Device.objects.filter(kind=kind).order_by("-heartbeat_at")
        model = model_met(uuid.UUID(self.journal.run))
        devices = devices.filter(model=model) if self.device == "cuda" and model else devices
        device = devices.filter(device=self.device).first() or devices.first()
        if device is None:
            return {"device": self.device}
        figures = {name: value for name, value in device.doctor.items() if isinstance(value, (str, int, float))}
        return {**figures, "device": device.device, "device_name": device.name, "device_model": device.model}


def model_met(run: uuid.UUID) -> str:
    """Return the device model of the run's first job, including jobs inherited by a fork; "" if there is none yet."""
    jobs = Verification.objects.filter(run=run).order_by("queued_at")
    taken = jobs.exclude(device_model="", device=None).values_list("device_model", "device__model").first()
    return next(filter(None, taken), "") if taken else ""
