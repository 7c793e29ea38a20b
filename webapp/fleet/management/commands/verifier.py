"""`manage.py verifier --device cpu` takes verification jobs for one device until it is stopped."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser


class Command(BaseCommand):
    help = "Take verification jobs for one device, one at a time. One process a device, on any host that reaches the database."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--device", required=True, help='"cpu" or "cuda:0"')

    def handle(self, device: str, **options: Any) -> None:
        from webapp.fleet.announce import Announcement  # --help answers without the verifier's client
        from webapp.runs.workers.verifier_worker import VerifierWorker

        if not re.fullmatch(r"cpu|cuda:\d+", device):
            raise CommandError(f'{device!r} is not a device: say "cpu" or "cuda:0"')
        if lacking := unknown_migrations():
            raise CommandError(
                f"the database lacks tables of this version ({lacking} migrations): a verifier creates none; start web and orchestrator of this"
                " version, or run `manage.py prepare` there"
            )
        asyncio.run(VerifierWorker(device, Announcement(device, settings.DATA_DIR)).main())


def unknown_migrations() -> int:
    """Returns the number of this version's migrations that the database lacks. The embedded database is prepared before this process starts."""
    if not os.environ.get("DATABASE_URL"):
        return 0
    from django.db import connection
    from django.db.migrations.loader import MigrationLoader

    loader = MigrationLoader(connection)
    return len(set(loader.disk_migrations) - set(loader.applied_migrations))
