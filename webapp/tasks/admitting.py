"""Tries out a source on the verifier, using normal admission and reporting it stage by stage."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

from django.utils import timezone

from verifier.client import Verifier
from verifier.jobs import AdmitJob, StageEvent
from webapp.database import in_thread
from webapp.tasks.models import TryOut

log = logging.getLogger(__name__)


async def execute(client: Verifier, device: str, try_out_id: uuid.UUID) -> None:
    """Run a try-out on a verifier unless the author has continued typing, report its stages, and store its findings."""
    row = await in_thread(_begin)(try_out_id, device)
    if row is None:
        return
    stages: dict[str, dict[str, Any]] = {}
    news = asyncio.Event()

    async def tell() -> None:
        while True:
            await news.wait()
            news.clear()
            await in_thread(TryOut.objects.filter(pk=row.pk).update)(stages=list(stages.values()))

    def take(stage: StageEvent) -> None:
        stages[stage.stage] = stage.model_dump()
        news.set()

    teller = asyncio.create_task(tell())
    try:
        result = await client.run(AdmitJob.model_validate({"task_source": row.source, "precision": row.precision, "mode": row.mode}), take)
        admission, error = result.admission, result.error
    except Exception as failure:
        log.exception("trying out %s failed", row.pk)
        admission, error = None, f"the verifier failed: {type(failure).__name__}: {failure}"[:1500]
    finally:
        teller.cancel()
    found = {"stages": list(stages.values()), "admission": admission.model_dump(mode="json") if admission else None, "error": error}
    await in_thread(TryOut.objects.filter(pk=row.pk).update)(state="finished", finished_at=timezone.now(), **found)


def _begin(try_out_id: uuid.UUID, device: str) -> TryOut | None:
    begun = {"state": "running", "started_at": timezone.now(), "device_name": device[:120]}
    if not TryOut.objects.filter(pk=try_out_id, state="queued").update(**begun):
        return None
    return TryOut.objects.get(pk=try_out_id)
