"""Access rights: decides who may do what in each team. All other apps check rights through this module.

A person's role grants rights: a viewer may "view"; a member may also "act" (submit, steer, comment, judge); an owner may also "own" (manage members
and the team's tokens, and decide what is published or shared). A personal token never grants more than its owner's role, and it is valid only in its
own team.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Literal

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest

from webapp.accounts.models import Membership, Team, User

if TYPE_CHECKING:
    from webapp.accounts.tokens import TokenGrant

Right = Literal["view", "act", "own"]

ROLES: dict[str, frozenset[str]] = {
    Membership.VIEWER: frozenset({"view"}),
    Membership.MEMBER: frozenset({"view", "act"}),
    Membership.OWNER: frozenset({"view", "act", "own"}),
}
# The scopes that a token needs for each right. One of these scopes is enough, but the token's owner must also have the right.
SCOPES: dict[str, frozenset[str]] = {
    "view": frozenset({"read", "submit", "verify", "admin"}),
    "act": frozenset({"submit", "verify", "admin"}),
    "own": frozenset({"admin"}),
}
REFUSALS: dict[str, str] = {
    "view": "Only team members can see this.",
    "act": "You can view this team but not change it. Switch to another team, or ask an owner to make you a member.",
    "own": "Only team owners can do this.",
}

Asker = HttpRequest | User


def user_of(asker: Asker) -> Any:
    """Returns the person who made a request (or the person passed in), or `AnonymousUser` if nobody is signed in."""
    return getattr(asker, "user", asker)


def grant_of(asker: Asker) -> TokenGrant | None:
    """Returns the personal token that came with a request. The code that accepts a token sets `request.grant`."""
    return getattr(asker, "grant", None)


def teams_with(asker: Asker, right: Right = "view") -> QuerySet[Team]:
    """Returns the teams in which the requester has the right."""
    user, grant = user_of(asker), grant_of(asker)
    if not user.is_authenticated or not user.is_active or (grant is not None and not grant.scopes & SCOPES[right]):
        return Team.objects.none()
    roles = [role for role, rights in ROLES.items() if right in rights]
    # This is a subquery because a join would list a team twice if the caller also joins memberships.
    found = Team.objects.filter(pk__in=Membership.objects.filter(user=user, role__in=roles).values("team"))
    return found.filter(pk=grant.team.pk) if grant is not None else found


def rights_in(asker: Asker, team: Team | uuid.UUID | None) -> frozenset[str]:
    """Returns all of the requester's rights in a team, using one query, or an empty set if the requester may not know that the team exists. `team`
    may be the team or its id."""
    user, grant, pk = user_of(asker), grant_of(asker), getattr(team, "pk", team)
    if not user.is_authenticated or not user.is_active or (grant is not None and str(grant.team.pk) != str(pk)):
        return frozenset()
    role = Membership.objects.filter(team=pk, user=user).values_list("role", flat=True).first()
    rights = ROLES.get(role or "", frozenset())
    return rights if grant is None else frozenset(right for right in rights if grant.scopes & SCOPES[right])


def has_right(asker: Asker, team: Team | uuid.UUID | None, right: Right) -> bool:
    """Returns whether the requester has the right. `team` may be the team or its id."""
    return right in rights_in(asker, team)


def require(asker: Asker, team: Team | uuid.UUID | None, right: Right) -> frozenset[str]:
    """Returns the requester's rights. Raises `Http404` if the requester may not know that the team's objects exist, and `PermissionDenied` with an
    explanation if the role or the token does not grant the right."""
    rights = rights_in(asker, team)
    if "view" not in rights:
        raise Http404("no such thing")
    if right not in rights:
        grant = grant_of(asker)
        if grant is not None and not grant.scopes & SCOPES[right]:
            raise PermissionDenied(f"This token lacks a scope: it needs {' or '.join(sorted(SCOPES[right]))}.")
        raise PermissionDenied(REFUSALS[right])
    return rights


def writable_teams(asker: Asker) -> list[Team]:
    """Returns the teams in which the requester can create objects, with the current team first."""
    teams = list(teams_with(asker, "act").order_by("name"))
    current = getattr(asker, "team", None)
    first = current.pk if current else user_of(asker).personal_team_id
    return sorted(teams, key=lambda team: team.pk != first)


def team_for(asker: Asker, team_id: str = "") -> Team:
    """Returns the team to which a new object will belong, which is the requested team or else the current one. Raises `PermissionDenied` if the
    requester may not create objects in it."""
    current = getattr(asker, "team", None) or (getattr(asker, "personal_team", None) if isinstance(asker, User) else None)
    for team in writable_teams(asker):
        if str(team.pk) == str(team_id or (current.pk if current else team.pk)):
            return team
    raise PermissionDenied(REFUSALS["act"])
