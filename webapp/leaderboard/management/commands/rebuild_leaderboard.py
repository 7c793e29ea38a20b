"""`manage.py rebuild_leaderboard` rebuilds the leaderboard's rows from the finished runs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction

from webapp.leaderboard.counting import count_all
from webapp.leaderboard.recording import record
from webapp.runs.models import Run


class Command(BaseCommand):
    help = "Rebuild every finished run's leaderboard row and decide which rows count. Nothing changes unless a row was wrong."

    def handle(self, **options: Any) -> None:
        written = 0
        for run_id in Run.objects.filter(state="finished").values_list("pk", flat=True).iterator():
            with transaction.atomic():
                run = Run.objects.select_for_update(no_key=True, of=("self",)).select_related("task").get(pk=run_id)
                written += record(run) is not None
        changed = count_all()
        self.stdout.write(f"{written} results; which of them counts was wrong for {changed}")
