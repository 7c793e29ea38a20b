"""Who may do what in which team. Every other app asks here.

A person's role gives rights: a viewer may "view"; a member may also "act" (submit, steer, comment, judge); an owner may also "own" (members, the
team's tokens, what is published or shared). A personal token never gives more than its owner's role, and only in its own team.
"""

from __future__ import annotations

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
# What a token has to say, any one of them, before its owner's right counts.
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
    """The person behind a request, or the person themselves; `AnonymousUser` where nobody is signed in."""
    return getattr(asker, "user", asker)


def grant_of(asker: Asker) -> TokenGrant | None:
    """The personal token that a request came with: whoever takes one sets `request.grant`."""
    return getattr(asker, "grant", None)


def teams_with(asker: Asker, right: Right = "view") -> QuerySet[Team]:
    """The teams in which the asker has the right."""
    user, grant = user_of(asker), grant_of(asker)
    if not user.is_authenticated or not user.is_active or (grant is not None and not grant.scopes & SCOPES[right]):
        return Team.objects.none()
    roles = [role for role, rights in ROLES.items() if right in rights]
    # A subquery: a join would say a team twice to whoever joins memberships once more.
    found = Team.objects.filter(pk__in=Membership.objects.filter(user=user, role__in=roles).values("team"))
    return found.filter(pk=grant.team.pk) if grant is not None else found


def rights_in(asker: Asker, team: Team | object) -> frozenset[str]:
    """All rights of the asker in a team, by one query; none where the asker may not know of it. `team` may be the team or its id."""
    user, grant, pk = user_of(asker), grant_of(asker), getattr(team, "pk", team)
    if not user.is_authenticated or not user.is_active or (grant is not None and str(grant.team.pk) != str(pk)):
        return frozenset()
    role = Membership.objects.filter(team=pk, user=user).values_list("role", flat=True).first()
    rights = ROLES.get(role or "", frozenset())
    return rights if grant is None else frozenset(right for right in rights if grant.scopes & SCOPES[right])


def has_right(asker: Asker, team: Team | object, right: Right) -> bool:
    """`team` may be the team or its id."""
    return right in rights_in(asker, team)


def require(asker: Asker, team: Team | object, right: Right) -> frozenset[str]:
    """The asker's rights. `Http404` for whoever may not know of the team's things; `PermissionDenied` with a sentence where the role, or the
    token, does not allow it."""
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
    """Teams in which new things can be made, the current one first."""
    teams = list(teams_with(asker, "act").order_by("name"))
    current = getattr(asker, "team", None)
    first = current.pk if current else user_of(asker).personal_team_id
    return sorted(teams, key=lambda team: team.pk != first)


def team_for(asker: Asker, team_id: str = "") -> Team:
    """The team that something new belongs to: the one asked for, else the current one. `PermissionDenied` where the asker may not write there."""
    current = getattr(asker, "team", None) or (getattr(asker, "personal_team", None) if isinstance(asker, User) else None)
    for team in writable_teams(asker):
        if str(team.pk) == str(team_id or (current.pk if current else team.pk)):
            return team
    raise PermissionDenied(REFUSALS["act"])
