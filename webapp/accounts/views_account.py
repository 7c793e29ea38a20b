"""The pages of a person's own account: identity, teams and tokens."""

from __future__ import annotations

import uuid
from typing import Any

from allauth.mfa.utils import is_mfa_enabled
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.accounts import audit, teams, tokens
from webapp.accounts.access import has_right, require, teams_with
from webapp.accounts.current_team import switch
from webapp.accounts.forms import TeamForm, TokenForm
from webapp.accounts.models import ApiToken, Membership
from webapp.accounts.signed_in import Request


@never_cache
@login_required
@require_GET
def account(request: Request) -> HttpResponse:
    return render(request, "accounts/account.html", _context(request, TeamForm()))


def _context(request: Request, form: TeamForm) -> dict[str, Any]:
    memberships = Membership.objects.filter(user=request.user).select_related("team").order_by("team__name")
    return {"memberships": memberships, "team_form": form, "two_factor": is_mfa_enabled(request.user)}


@login_required
@require_POST
def new_team(request: Request) -> HttpResponse:
    form = TeamForm(request.POST)
    if not form.is_valid():
        return render(request, "accounts/account.html", _context(request, form), status=422)
    team = teams.create(request, form.cleaned_data["name"])
    messages.success(request, f"{team} is ready and is now your current team. Invite teammates with a link.")
    return redirect("accounts:team", team.pk)


@login_required
@require_POST
def switch_team(request: Request) -> HttpResponse:
    """Switches to another of the person's teams. Redirects to the list of its runs, because the current page may belong to the previous team."""
    try:
        wanted = uuid.UUID(request.POST.get("team", ""))
    except ValueError:
        wanted = None
    switch(request, get_object_or_404(teams_with(request), pk=wanted))
    return redirect("runs:list")


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def my_tokens(request: Request) -> HttpResponse:
    """Shows the person's tokens in all teams. A new token belongs to the current team, and its text is shown only in this response."""
    form = TokenForm(request.POST or None)
    made, text = None, ""
    if request.method == "POST" and form.is_valid():
        require(request, request.team, "view")
        made, text = tokens.issue(request.user, request.team, form.cleaned_data["name"], form.cleaned_data["scopes"], form.expires_at())
        audit.record(request, request.team, "token.made", made.name, {"prefix": made.prefix, "scopes": made.scopes})
        form = TokenForm()
    mine = ApiToken.objects.filter(user=request.user).select_related("team").order_by("-created_at")
    context = {"form": form, "scopes": tokens.SCOPES, "tokens": mine, "made": made, "text": text}
    return render(request, "accounts/tokens.html", context, status=422 if form.errors else 200)


@login_required
@require_POST
def revoke_token(request: Request, token_id: uuid.UUID) -> HttpResponse:
    """Revokes one of the person's own tokens, or a token of a team that the person owns."""
    token = get_object_or_404(ApiToken.objects.select_related("team", "user"), pk=token_id)
    own = token.user_id == request.user.pk
    if not own:
        require(request, token.team, "own")
    teams.revoke_token(request, token)
    messages.success(request, f"The token {token.name} is revoked: requests with it are refused from now on.")
    back_to_team = "from_team" in request.POST and has_right(request, token.team, "view")
    return redirect("accounts:team_tokens", token.team_id) if back_to_team else redirect("accounts:tokens")
