"""Controls the leaderboard pages that need no account, for teams that have opened their results. A team can open only its published results, and can
close them again."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from verifier.confinement.probe import waived
from webapp.accounts import alone
from webapp.accounts.access import Asker, user_of
from webapp.accounts.models import Team, User
from webapp.leaderboard.models import Opening

READING = ("GET", "HEAD")


def opened_teams() -> QuerySet[Opening, uuid.UUID]:
    """Return the ids of the teams whose published results everybody may see."""
    found = Opening.objects.none() if waived() else Opening.objects.all()
    return found.values_list("team", flat=True)


def signed_in(asker: Asker) -> bool:
    return bool(user_of(asker).is_authenticated)


def open_team(team: Team, by: User) -> None:
    alone.refuse("public results")
    Opening.objects.get_or_create(team=team, defaults={"by": by})


def close_team(team: Team) -> None:
    Opening.objects.filter(team=team).delete()


def open_where_published(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Let people without an account read the page if at least one team has opened its results; otherwise ask them to sign in."""

    @wraps(view)
    def shown(request: HttpRequest, *arguments: object, **named: object) -> HttpResponse:
        if signed_in(request) or (request.method in READING and opened_teams().exists()):
            return view(request, *arguments, **named)
        return login_required(view)(request, *arguments, **named)

    return shown
