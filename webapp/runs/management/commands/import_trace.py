"""`manage.py import_trace DIR...` creates runs from trace directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.accounts.first_user import first_user
from webapp.accounts.models import User
from webapp.runs.trace.on_disk import TraceRefused, import_trace


class Command(BaseCommand):
    help = "Make a run of each trace directory (trace.jsonl and artefacts/, as `python -m agents solve --out DIR` writes them)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
        parser.add_argument("--user", help="whose personal team gets the runs; default: the first user")
        parser.add_argument("--title", default="", help="default: the task's name")

    def handle(self, folders: list[Path], user: str | None = None, title: str = "", **options: Any) -> None:
        try:
            owner = User.objects.get(username=user) if user else first_user()
        except User.DoesNotExist:
            raise CommandError(f"there is no user {user!r}") from None
        for folder in folders:
            try:
                run = import_trace(folder, owner.home, owner, title)
            except TraceRefused as error:
                raise CommandError(str(error)) from None
            self.stdout.write(f"{run.pk} {run.title}: {run.last_seq} events, {run.outcome or run.state}")
