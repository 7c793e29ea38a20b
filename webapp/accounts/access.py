"""Which teams a person belongs to, and where what that person makes goes."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied

from webapp.accounts.models import Membership, Team, User


def writable_teams(user: User) -> list[Team]:
    """Teams in which the user may start runs, the personal one first."""
    teams = Team.objects.filter(membership__user=user, membership__role__in=[Membership.OWNER, Membership.MEMBER]).order_by("name")
    return sorted(teams, key=lambda team: team.pk != user.personal_team_id)


def team_for(user: User, team_id: str = "") -> Team:
    """The team that something new belongs to: the one asked for, else the personal one. `PermissionDenied` where the user may not write there."""
    teams = writable_teams(user)
    if not team_id and teams:
        return teams[0]
    for team in teams:
        if str(team.pk) == team_id:
            return team
    raise PermissionDenied("you can only start runs in teams that you are a member of")
