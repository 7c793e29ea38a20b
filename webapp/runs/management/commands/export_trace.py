"""`manage.py export_trace RUN DIR` writes a run as trace.jsonl and artefacts/."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.runs.models import Run
from webapp.runs.trace.on_disk import TraceRefused, export_trace


class Command(BaseCommand):
    help = "Write a run's events and artefacts into a directory that import_trace reads back unchanged."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's id")
        parser.add_argument("folder", type=Path, metavar="DIR")

    def handle(self, run: str, folder: Path, **options: Any) -> None:
        found = _run(run)
        try:
            export_trace(found, folder)
        except TraceRefused as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{folder}: {found.last_seq} events")


def _run(text: str) -> Run:
    try:
        return Run.objects.get(pk=uuid.UUID(text))
    except (ValueError, Run.DoesNotExist):
        raise CommandError(f"there is no run {text!r}") from None
