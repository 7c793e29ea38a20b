"""`manage.py export_agreed DIR` exports the finished runs of teams that have agreed to their use for training, each as a trace with
`agreement.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.accounts.training import agreeing
from webapp.runs.models import Run
from webapp.runs.trace.on_disk import TraceRefused, export_trace


class Command(BaseCommand):
    help = "Write runs that may be used for training, for `python -m agents.rl export`. Imported runs are left out: other people made them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR")

    def handle(self, folder: Path, **options: Any) -> None:
        teams = agreeing()
        if not teams:
            raise CommandError("no team allows its runs to be used for training: see `manage.py training_consent TEAM --agree --by USER`")
        count = 0
        for team, word in teams:
            for run in Run.objects.filter(team=team, state="finished", archived_at=None, imported=False).order_by("finished_at", "id"):
                place = folder / str(run.pk)
                try:
                    export_trace(run, place)
                except TraceRefused as error:
                    raise CommandError(str(error)) from None
                verdicts = dict(run.candidates.exclude(verdict="").values_list("number", "verdict"))
                said = {"by": f"the team's owner {word.actor_name}, {word.at:%Y-%m-%d}", "verdicts": verdicts}
                (place / "agreement.json").write_text(json.dumps(said))
                count += 1
        self.stdout.write(f"{folder}: {count} runs of {len(teams)} teams")
