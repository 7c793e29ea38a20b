"""The verifier process, which serves one device and runs one job at a time.

Each job is passed to the judge (`verifier.client`), which runs untrusted code in its sandboxes.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from contextlib import suppress
from typing import Protocol

from django.conf import settings
from django.db import DatabaseError
from procrastinate.exceptions import ConnectorException
from psycopg_pool import PoolTimeout

from verifier.client import Verifier
from verifier.confinement.probe import AGAIN, probe, waived
from verifier.jobs import JobResult, StageEvent
from verifier.report import Environment
from webapp.database import in_thread
from webapp.fleet.models import Device
from webapp.runs.jobs import queues_of
from webapp.runs.workers import handover
from webapp.runs.workers.handover import Claim, ClaimLost
from webapp.runs.workers.worker import work

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0  # heartbeat of the device; the queue has a separate one
STAGE_SECONDS = 0.25  # shortest interval between progress updates; a stage's start and end are reported immediately


class Announcement(Protocol):
    """The entry of this verifier in the list of devices. `webapp.fleet.announce.Announcement` implements it."""

    busy_with: str

    def announce(self, environment: Environment | None, unusable: str = "", needs_sandbox: str = "") -> Device: ...

    def beat(self) -> None: ...

    def leave(self) -> None: ...


class VerifierWorker:
    def __init__(self, device: str, announcement: Announcement):
        self.device, self.announcement = device, announcement
        self.client = Verifier(device, settings.DATA_DIR / "verifier")
        self.row: Device | None = None

    async def main(self) -> None:
        await self._sandboxed()
        try:
            environment, unusable = await self.client.ready(), ""
        except OSError as error:  # announce the device anyway; the page shows what is missing, and jobs fail with this reason
            environment, unusable = None, str(error)
            log.error("%s cannot be used: %s", self.device, unusable)
        self.row = await in_thread(self.announcement.announce)(environment, unusable)
        log.info("verifier for %s: %s", self.device, self.row.name)
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            await work(queues_of(self.device, self.row.model), concurrency=1, context={"verifier": self}, patience=0.1)
        finally:
            heartbeat.cancel()
            with suppress(asyncio.CancelledError):
                await heartbeat
            await self.client.close()
            with suppress(DatabaseError, PoolTimeout):
                await in_thread(self.announcement.leave)()

    async def _sandboxed(self) -> None:
        """Return once this host can confine untrusted sources or that requirement has been waived.

        Until then jobs stay in the queue, and the device's row says what is missing.
        """
        said = ""
        while not (found := await asyncio.to_thread(probe)).path and not waived():
            if found.why != said:
                said = found.why
                log.error("%s needs a sandbox: %s", self.device, said)
                await in_thread(self.announcement.announce)(None, f"needs a sandbox: {said}", needs_sandbox=said)
            else:
                with suppress(DatabaseError, PoolTimeout):
                    await in_thread(self.announcement.beat)()
            await asyncio.sleep(AGAIN)

    async def execute(self, verification: uuid.UUID, attempt: int, epoch: int) -> None:
        """Execute one attempt. If the claim is lost in the meantime (because the run was cancelled or the queue replaced this worker), the job ends
        silently."""
        claim = Claim(verification, attempt, epoch)
        assert self.row is not None
        try:
            job = await in_thread(handover.start)(claim, self.row)
            await self._busy(f"{job.kind} {str(verification)[:8]}")
            stages = StageReporter(claim)
            try:
                result = await self.client.run(job, stages.take)
            except Exception as error:
                log.exception("verification %s failed", verification)
                result = JobResult(error=f"the verifier failed: {type(error).__name__}: {error}"[:1500])
            finally:
                await stages.close()
            await in_thread(handover.finish)(claim, result)
        except ClaimLost as lost:
            log.info("%s", lost)
        finally:
            await self._busy("")

    async def _busy(self, what: str) -> None:
        self.announcement.busy_with = what
        with suppress(DatabaseError, PoolTimeout):
            await in_thread(self.announcement.beat)()

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await in_thread(self.announcement.beat)()
            except (DatabaseError, PoolTimeout, ConnectorException) as error:
                log.warning("no heartbeat: %s", str(error).strip()[:200])


class StageReporter:
    """Writes the job's stages to the database without making the job wait."""

    def __init__(self, claim: Claim):
        self.claim = claim
        self._waiting: list[StageEvent] = []
        self._news = asyncio.Event()
        self._closing = False
        self._writer = asyncio.create_task(self._write())

    def take(self, stage: StageEvent) -> None:
        """Record a stage; called by the verifier's client. Only the latest progress report of each stage is kept."""
        last = self._waiting[-1] if self._waiting else None
        if last is not None and stage.status == last.status == "progress" and stage.stage == last.stage:
            self._waiting[-1] = stage
        else:
            self._waiting.append(stage)
        self._news.set()

    async def close(self) -> None:
        """Write the remaining stages."""
        self._closing = True
        self._news.set()
        await self._writer

    async def _write(self) -> None:
        written = 0.0
        while True:
            await self._news.wait()
            if not self._closing and all(stage.status == "progress" for stage in self._waiting):
                await asyncio.sleep(max(0.0, written + STAGE_SECONDS - time.monotonic()))
            self._news.clear()
            stages, self._waiting = self._waiting, []
            if stages:
                try:
                    await in_thread(handover.report_stages)(self.claim, stages)
                except ClaimLost:
                    return  # `finish` raises it again
                except (DatabaseError, PoolTimeout) as error:
                    log.warning("a stage could not be written: %s", str(error).strip()[:200])
                written = time.monotonic()
            if self._closing and not self._waiting:
                return
