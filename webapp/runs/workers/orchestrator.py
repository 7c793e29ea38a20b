"""The orchestrator process. It executes many runs concurrently, each with its own engine on the database. It never executes the source of a task or
program."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from contextlib import suppress

from django.conf import settings
from django.db import DatabaseError
from psycopg_pool import PoolTimeout

from agents.events import NewEvent
from agents.llm import open_models
from agents.memory.experience import FolderExperience
from agents.payloads import Failure, RunFinished
from agents.ports import LeaseLost
from agents.roles.casting import roles_for
from agents.run import Engine
from agents.settings import Settings
from agents.workflows import FUNCTIONS
from webapp.database import in_thread
from webapp.runs.jobs import ORCHESTRATOR
from webapp.runs.live.hub import hub
from webapp.runs.models import Run
from webapp.runs.services import submitted_program
from webapp.runs.trace.append import append
from webapp.runs.workers.additions import BESIDE, PORTS, RESCUES
from webapp.runs.workers.journal import DatabaseJournal, take_lease
from webapp.runs.workers.rescue import rescue
from webapp.runs.workers.verifier_port import QueuedVerifier
from webapp.runs.workers.worker import work

log = logging.getLogger(__name__)

CONCURRENT_RUNS = 100  # can be high, because runs spend most of their time waiting
RESCUE_SECONDS = 1.0


class Orchestrator:
    def __init__(self) -> None:
        self.models = open_models(os.environ, PORTS.mailbox())  # no other process has the models' keys

    async def main(self) -> None:
        beside = [asyncio.create_task(self._rescue()), *(asyncio.create_task(one(self.models)) for one in BESIDE)]
        try:
            await work([ORCHESTRATOR], concurrency=CONCURRENT_RUNS, context={"orchestrator": self}, patience=0.1)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await hub().close()

    async def execute(self, run_id: uuid.UUID) -> None:
        """Run or resume one run. The run always ends in a named state or is picked up again later."""
        run = await in_thread(take_lease)(run_id)
        if run is None:
            return
        log.info("run %s, lease epoch %d", run.pk, run.lease_epoch)
        try:
            journal = DatabaseJournal(run.pk, run.team_id, run.lease_epoch)
            known = await in_thread(PORTS.knowledge)(run)
            chosen = Settings.model_validate(run.settings)
            engine = Engine(
                journal,
                QueuedVerifier(journal, chosen.device),
                chosen,
                run.task.source,
                run.task.name,
                FUNCTIONS[chosen.workflow],
                roles_for,
                program_source=await in_thread(submitted_program)(run),
                models=self.models,
                library=known.library,
                inspirations=known.inspirations,
                experience=FolderExperience(settings.DATA_DIR / "experience" / str(run.team_id)),
                split=known.split,
                on_pause="leave",  # a paused run frees its slot until it is resumed (webapp/runs/control.py)
            )
            await engine.execute()
        except LeaseLost as error:
            log.info("run %s: %s", run.pk, error)
        except Exception as error:
            log.exception("run %s cannot be executed", run.pk)
            await in_thread(self._give_up)(run, error)

    @staticmethod
    def _give_up(run: Run, error: Exception) -> None:
        """End a run whose engine could neither start nor end it, because it would otherwise be retried forever."""
        message = f"{type(error).__name__}: {error}"[:2000]
        failure = Failure(message=message, where="orchestrator", kept="all events and artefacts up to here")
        ending = RunFinished(outcome="failed", reason=f"the run could not be executed: {message}", best=None, speedup=None)
        events = [NewEvent.of(failure, agent="engine"), NewEvent.of(ending, agent="engine")]
        with suppress(LeaseLost):
            append(run.pk, events, epoch=run.lease_epoch)

    async def _rescue(self) -> None:
        while True:
            try:
                count = await in_thread(rescue)(settings.STALLED_AFTER_SECONDS)
                for one in RESCUES:
                    count += await in_thread(one)()
                if count:
                    log.warning("%d stalled or lost jobs were taken up again", count)
            except (DatabaseError, PoolTimeout) as error:
                log.warning("the rescue round failed: %s", str(error).strip()[:200])
            await asyncio.sleep(RESCUE_SECONDS)
