"""`manage.py training_consent TEAM --agree --by OWNER` permits training on a team's runs (`python -m agents.rl export`), or withdraws consent."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.accounts import audit
from webapp.accounts.access import has_right
from webapp.accounts.models import Team, User
from webapp.accounts.training import AGREED, WITHDRAWN, last_word


class Command(BaseCommand):
    help = "Say whether a team's finished runs may be exported as training data. The audit log of the team keeps each answer; the latest counts."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("team", help="the team's short name, as in its address")
        said = parser.add_mutually_exclusive_group()
        said.add_argument("--agree", action="store_const", const=AGREED, dest="said")
        said.add_argument("--withdraw", action="store_const", const=WITHDRAWN, dest="said")
        parser.add_argument("--by", metavar="USER", help="an owner of the team, who said so")

    def handle(self, team: str, said: str | None = None, by: str | None = None, **options: Any) -> None:
        found = Team.objects.filter(slug=team).first()
        if found is None:
            names = ", ".join(Team.objects.order_by("slug").values_list("slug", flat=True)[:10])
            raise CommandError(f"there is no team {team!r}; there are: {names or 'none yet'}")
        if said is not None:
            owner = User.objects.filter(username=by or "").first()
            if owner is None or not has_right(owner, found, "own"):
                raise CommandError("--by has to name an owner of the team")
            audit.record(owner, found, said)
        last = last_word(found)
        if last is None:
            self.stdout.write(f"{team}: nobody agreed, so its runs are not exported")
            return
        verb = "agreed" if last.action == AGREED else "withdrew"
        self.stdout.write(f"{team}: {last.actor_name} {verb} on {last.at:%Y-%m-%d %H:%M}")
