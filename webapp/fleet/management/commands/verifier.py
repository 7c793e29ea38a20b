"""`manage.py verifier --device cpu` takes verification jobs for one device until it is stopped."""

from __future__ import annotations

import asyncio
import re

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = "Take verification jobs for one device, one at a time. One process a device, on any host that reaches the database."
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("--device", required=True, help='"cpu" or "cuda:0"')

    def handle(self, device: str, **options):
        from webapp.runs.verifier_worker import VerifierWorker

        if not re.fullmatch(r"cpu|cuda:\d+", device):
            raise CommandError(f'{device!r} is not a device: say "cpu" or "cuda:0"')
        asyncio.run(VerifierWorker(device).main())
