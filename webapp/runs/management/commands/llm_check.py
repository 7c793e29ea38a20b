"""`manage.py llm_check [PROFILE]` tries language models in the orchestrator's own environment."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand

from agents.llm import cli


class Command(BaseCommand):
    help = "Ask each profile of a language model for one word: speed, usage, cost, or what is wrong. Exit codes: 0 all work, 1 one does not, 2 usage."
    requires_system_checks = []

    def add_arguments(self, parser):
        cli.add_check_arguments(parser)

    def handle(self, profiles, json, **options):
        code = cli.check(profiles, as_json=json)
        if code:
            sys.exit(code)
