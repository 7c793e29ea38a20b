"""Runs the queue's worker as one of our processes. It picks up new work quickly, its death is detected quickly, and it stops cleanly."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from procrastinate import PsycopgConnector
from procrastinate.contrib.django import app

from webapp.database import connection_parameters

log = logging.getLogger(__name__)


async def work(queues: list[str], *, concurrency: int, context: dict[str, Any], patience: float) -> None:
    """Process jobs until SIGTERM or SIGINT.

    Jobs that are still running after `patience` seconds are cancelled, and webapp/runs/workers/rescue.py queues them again.
    """
    connector = PsycopgConnector(kwargs=connection_parameters(), min_size=1, max_size=4)
    worker_app = app.with_connector(connector)
    async with worker_app.open_async():
        await worker_app.run_worker_async(
            queues=queues,
            concurrency=concurrency,
            additional_context=context,
            fetch_job_polling_interval=settings.QUEUE_POLL_SECONDS,
            update_heartbeat_interval=settings.HEARTBEAT_SECONDS,
            stalled_worker_timeout=settings.STALLED_AFTER_SECONDS,
            shutdown_graceful_timeout=patience,
            delete_jobs="successful",
            install_signal_handlers=True,
        )
