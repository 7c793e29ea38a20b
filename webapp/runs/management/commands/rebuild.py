"""`manage.py rebuild RUN...` rebuilds a run's rows from its events."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.runs.models import Run
from webapp.runs.trace.projection import rebuild


class Command(BaseCommand):
    help = "Rebuild the rows behind lists and pages from the events. Nothing changes unless a row was wrong."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("runs", nargs="*", metavar="RUN", help="ids; default: all runs")

    def handle(self, runs: list[str], **options: Any) -> None:
        try:
            wanted = [uuid.UUID(text) for text in runs] or list(Run.objects.values_list("pk", flat=True))
            for run in wanted:
                rebuild(run)
        except (ValueError, Run.DoesNotExist) as error:
            raise CommandError(f"not a run: {error}") from None
        self.stdout.write(f"{len(wanted)} runs")
