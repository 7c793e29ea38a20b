"""`manage.py orchestrator` runs workflows until it is stopped."""

from __future__ import annotations

import asyncio
from typing import Any

from django.core.management.base import BaseCommand

from webapp.runs.workers.orchestrator import Orchestrator


class Command(BaseCommand):
    help = "Run workflows: many at a time, waiting for verdicts and models. As many orchestrators as you like may run."
    requires_system_checks = []

    def handle(self, **options: Any) -> None:
        asyncio.run(Orchestrator().main())
