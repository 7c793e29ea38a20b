"""`manage.py llm_check [PROFILE]` tries language models in the orchestrator's own environment."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from psycopg_pool import PoolTimeout

from agents.llm import cli
from webapp.llm.mailbox import DatabaseMailbox


class Command(BaseCommand):
    help = "Ask each profile of a language model for one word: speed, usage, cost, or what is wrong. Exit codes: 0 all work, 1 some fail, 2 usage."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        cli.add_check_arguments(parser)

    def handle(self, profiles: list[str], json: bool, **options: Any) -> None:
        try:
            code = cli.check(profiles, as_json=json, store=DatabaseMailbox())
        except (DatabaseError, PoolTimeout) as error:  # raised by a mailbox profile
            raise CommandError(f"the database cannot be reached: {str(error).strip()[:300]}; start it, or set DATABASE_URL") from None
        if code:
            sys.exit(code)
