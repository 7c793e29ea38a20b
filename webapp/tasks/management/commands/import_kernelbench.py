"""`manage.py import_kernelbench PATH` reads a KernelBench checkout into one suite per level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.accounts.first_user import first_user
from webapp.accounts.models import User
from webapp.tasks.kernelbench import NotKernelBench, import_kernelbench


class Command(BaseCommand):
    help = "Read the tasks of a KernelBench checkout (KernelBench/level1/1_name.py, ...) into one suite a level. Nothing in it is run."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path)
        parser.add_argument("--user", help="whose personal team gets the suites; default: the first user")

    def handle(self, path: Path, user: str | None = None, **options: Any) -> None:
        try:
            owner = User.objects.get(username=user) if user else first_user()
            for suite in import_kernelbench(path, owner.home, owner):
                self.stdout.write(f"{suite.name}: {suite.new} new, {suite.known} known, {len(suite.problems)} refused")
                for problem in suite.problems:
                    self.stderr.write(f"  {problem}")
        except User.DoesNotExist:
            raise CommandError(f"there is no user {user!r}") from None
        except NotKernelBench as error:
            raise CommandError(str(error)) from None
