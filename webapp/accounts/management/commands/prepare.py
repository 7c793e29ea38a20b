"""`manage.py prepare` prepares everything that must be ready before the processes start. Each step first checks whether it is needed."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connection
from psycopg_pool import PoolTimeout

from verifier.confinement.probe import CHOICE, waived
from webapp import roles
from webapp.accounts.first_user import first_user, sign_in_path
from webapp.accounts.models import User
from webapp.assets import collect
from webapp.leaderboard.models import Result
from webapp.runs.models import Run
from webapp.runs.trace.on_disk import import_examples
from webapp.tasks.load_examples import load_examples

OLDEST_POSTGRES = 140000


class Command(BaseCommand):
    help = "Migrate, collect static files, load the examples and traces, and give out a sign-in link for the first user."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--link-fd", type=int, help="write the link's path to this file descriptor")

    def handle(self, link_fd: int | None = None, **options: Any) -> None:
        try:
            with connection.cursor() as cursor:
                version = cursor.connection.info.server_version
        except (OperationalError, PoolTimeout) as error:
            raise CommandError(f"the database cannot be reached: {error}") from None
        if version < OLDEST_POSTGRES:
            raise CommandError(f"the database is Postgres {version // 10000}; 14 or newer is needed")
        call_command("migrate", verbosity=0, interactive=False)
        roles.grant()
        if not settings.DEBUG:
            collect()
        user = first_user()
        if waived() and (others := User.objects.filter(is_active=True).count() - 1) > 0:
            raise CommandError(f"{CHOICE}=none is for one account, and this installation has {others} more: take another DATA_DIR")
        for problem in [*load_examples(user), *import_examples(user)]:
            print(f"stitchwork: {problem}", file=sys.stderr)
        if Run.objects.filter(state="finished").exists() and not Result.objects.exists():  # for runs that predate the results table
            call_command("rebuild_leaderboard", stdout=sys.stderr)
        if link_fd is not None:
            with os.fdopen(link_fd, "w") as answer:
                answer.write(sign_in_path(user))
