"""`request.team` is the team in which a person is currently working.

It is stored in the session and remembered for the next one. People who leave or lose the team fall back to their personal team.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from webapp.accounts.access import grant_of, teams_with
from webapp.accounts.models import Team, User
from webapp.accounts.signed_in import Request

SESSION_KEY = "team"


class CurrentTeam:
    """Makes `request.team` a lazy value that is loaded on first use. It is falsy if nobody is signed in."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        cast(Request, request).team = cast(Team, SimpleLazyObject(lambda: current_team(request)))
        return self.get_response(request)


def current_team(request: HttpRequest) -> Team | None:
    grant = grant_of(request)
    if grant is not None:
        return grant.team
    user = request.user
    if not user.is_authenticated:
        return None
    wanted = [request.session.get(SESSION_KEY), user.last_team_id, user.personal_team_id]
    teams = {str(team.pk): team for team in teams_with(user)}
    chosen = next((str(team) for team in wanted if str(team) in teams), None)
    return teams[chosen] if chosen else next(iter(teams.values()), None)


def switch(request: Request, team: Team) -> None:
    """Makes `team` the current team. The caller must have checked that the person is a member."""
    request.session[SESSION_KEY] = str(team.pk)
    request.team = team
    User.objects.filter(pk=request.user.pk).update(last_team=team)
