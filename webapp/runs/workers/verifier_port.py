"""The engine's verifier behind the queue."""

from __future__ import annotations

import uuid
from typing import Any

from verifier.jobs import Job, JobResult
from webapp.database import in_thread
from webapp.fleet.models import Device
from webapp.runs.jobs import queue_for
from webapp.runs.live.hub import hub
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
            verification = await in_thread(handover.ask)(
                run, job, key=key, span=span, candidate=number, queue=queue_for(self.device), epoch=self.journal.epoch
            )
            while True:
                await follower.woken()
                result = await in_thread(handover.result_of)(verification)
                if result is not None:
                    return result

    async def describe(self) -> dict[str, Any]:
        """What the verifier that will probably take the job has announced."""
        return await in_thread(self._describe)()

    def _describe(self) -> dict[str, Any]:
        kind = self.device.partition(":")[0]
        devices = Device.objects.filter(kind=kind).order_by("-heartbeat_at")
        device = devices.filter(device=self.device).first() or devices.first()
        if device is None:
            return {"device": self.device}
        figures = {name: value for name, value in device.doctor.items() if isinstance(value, (str, int, float))}
        return {**figures, "device": device.device, "device_name": device.name, "device_model": device.model}
