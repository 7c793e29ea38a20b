"""A team's settings: members, invitations, tokens, devices, and models with their cost."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts import teams
from webapp.accounts.access import Right, has_right, require
from webapp.accounts.forms import ROLES, InvitationForm, RoleForm, TeamForm
from webapp.accounts.models import ApiToken, Invitation, Membership, Team
from webapp.accounts.signed_in import Request
from webapp.accounts.tokens import SCOPES
from webapp.fleet.views import device_rows
from webapp.llm.models import Profile
from webapp.llm.spend import MONTHS, spend_of

SHOWN_INVITATIONS = 50


def team_for_page(request: Request, team_id: uuid.UUID, right: Right = "view") -> tuple[Team, dict[str, Any]]:
    """Returns the team and the context of its page frame; refuses people without the right."""
    require(request, team_id, right)
    team = Team.objects.get(pk=team_id)
    owns = has_right(request, team, "own")
    tabs = [
        ("accounts:team", "Members"), ("accounts:team_tokens", "Tokens"), ("accounts:team_devices", "Devices"),
        ("accounts:team_models", "Models and spend"), *([("accounts:audit", "Audit log")] if owns else []),
    ]  # fmt: skip
    here = request.resolver_match.view_name if request.resolver_match else ""
    links = [{"href": reverse(name, args=[team.pk]), "label": label, "current": name == here} for name, label in tabs]
    return team, {"team": team, "owns": owns, "tabs": links, "personal": team.pk == request.user.personal_team_id}


@never_cache
@login_required
@require_GET
def team(request: Request, team_id: uuid.UUID) -> HttpResponse:
    return _members(request, *team_for_page(request, team_id))


def _members(
    request: Request, team: Team, context: dict[str, Any], *, invitation_form: Form | None = None, team_form: Form | None = None, link: str = ""
) -> HttpResponse:
    context |= {
        "members": Membership.objects.filter(team=team).select_related("user").order_by("user__username"),
        "roles": ROLES,
        "team_form": team_form or TeamForm(initial={"name": team.name}),
        "link": link,
    }
    if context["owns"]:
        context["invitation_form"] = invitation_form or InvitationForm()
        context["invitations"] = team.invitations.select_related("created_by").order_by("-created_at")[:SHOWN_INVITATIONS]
    refused = bool((invitation_form and invitation_form.errors) or (team_form and team_form.errors))
    return render(request, "accounts/team.html", context, status=422 if refused else 200)


@login_required
@require_POST
def rename(request: Request, team_id: uuid.UUID) -> HttpResponse:
    found, context = team_for_page(request, team_id, "own")
    form = TeamForm(request.POST)
    if not form.is_valid():
        return _members(request, found, context, team_form=form)
    teams.rename(request, found, form.cleaned_data["name"])
    messages.success(request, f"The team is called {found} now.")
    return redirect("accounts:team", found.pk)


@login_required
@require_POST
def invite(request: Request, team_id: uuid.UUID) -> HttpResponse:
    """Creates an invitation link and shows it only in this response, because only its hash is stored."""
    found, context = team_for_page(request, team_id, "own")
    form = InvitationForm(request.POST)
    if not form.is_valid():
        return _members(request, found, context, invitation_form=form)
    _, token = teams.invite(request, found, **form.given())
    return _members(request, found, context, link=request.build_absolute_uri(reverse("accounts:invitation", args=[token])))


@login_required
@require_POST
def revoke_invitation(request: Request, team_id: uuid.UUID, invitation_id: uuid.UUID) -> HttpResponse:
    found, _ = team_for_page(request, team_id, "own")
    teams.revoke_invitation(request, get_object_or_404(Invitation.objects.select_related("team"), team=found, pk=invitation_id))
    messages.success(request, "Invitation revoked: its link no longer works.")
    return redirect("accounts:team", found.pk)


@login_required
@require_POST
def set_role(request: Request, team_id: uuid.UUID, member_id: int) -> HttpResponse:
    found, _ = team_for_page(request, team_id, "own")
    member = get_object_or_404(Membership.objects.select_related("user"), team=found, pk=member_id)
    form = RoleForm(request.POST)
    try:
        if not form.is_valid():
            raise teams.TeamRefused("The role is owner, member or viewer.")
        teams.set_role(request, found, member, form.cleaned_data["role"])
        messages.success(request, f"{member.user} is {form.cleaned_data['role']} now.")
    except teams.TeamRefused as error:
        messages.error(request, str(error))
    return redirect("accounts:team", found.pk)


@login_required
@require_POST
def remove(request: Request, team_id: uuid.UUID, member_id: int) -> HttpResponse:
    """Removes a member. Members may remove themselves."""
    member = get_object_or_404(Membership.objects.select_related("user"), team=team_id, pk=member_id)
    leaves = member.user_id == request.user.pk
    found, _ = team_for_page(request, team_id, "view" if leaves else "own")
    try:
        teams.remove(request, found, member)
    except teams.TeamRefused as error:
        messages.error(request, str(error))
        return redirect("accounts:team", found.pk)
    messages.success(request, f"You left {found}." if leaves else f"{member.user} was removed from the team, and their tokens for it are revoked.")
    return redirect("accounts:account") if leaves else redirect("accounts:team", found.pk)


@login_required
@require_GET
def team_tokens(request: Request, team_id: uuid.UUID) -> HttpResponse:
    """Lists tokens for this team. Owners see the tokens of all members, and others see only their own. The text of a token is never shown, because it
    is not stored."""
    found, context = team_for_page(request, team_id)
    shown = ApiToken.objects.filter(team=found).select_related("user").order_by("-created_at")
    context["tokens"] = shown if context["owns"] else shown.filter(user=request.user)
    context["scopes"] = SCOPES
    return render(request, "accounts/team_tokens.html", context)


@login_required
@require_GET
def team_devices(request: Request, team_id: uuid.UUID) -> HttpResponse:
    found, context = team_for_page(request, team_id)
    return render(request, "accounts/team_devices.html", context | {"devices": device_rows(found)})


@login_required
@require_GET
def team_models(request: Request, team_id: uuid.UUID) -> HttpResponse:
    found, context = team_for_page(request, team_id)
    context |= {"profiles": Profile.objects.order_by("name"), "spend": spend_of([found]), "months": MONTHS}
    return render(request, "accounts/team_models.html", context)
