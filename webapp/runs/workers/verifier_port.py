"""The engine's verifier behind the queue."""

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
    """`agents.ports.VerifierPort`: asks once for each key, and waits for `verification.finished`, however many verifiers die over it."""

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
        """Where a job of the run waits: of one on any GPU for a free one of the model that its first job met, whose figures the others are held
        against."""
        return queue_for(self.device, model_met(run) if self.device == "cuda" else "")

    async def describe(self) -> dict[str, Any]:
        """What the verifier that will probably take the job has announced."""
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
    """The model of the device that did the run's first job, those that a fork inherited among them; empty before there is one."""
    jobs = Verification.objects.filter(run=run).order_by("queued_at")
    taken = jobs.exclude(device_model="", device=None).values_list("device_model", "device__model").first()
    return next(filter(None, taken), "") if taken else ""
