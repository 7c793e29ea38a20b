"""The views for our own ways to sign in: one-time links and invitations. Passwords and codes use allauth's views (urls_sign_in.py)."""

from __future__ import annotations

from typing import cast

from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from django.contrib import messages
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts import teams
from webapp.accounts.current_team import switch
from webapp.accounts.models import Membership, SignInLink
from webapp.accounts.signed_in import Request


@never_cache
@require_http_methods(["GET"])  # not HEAD, because a link preview must not use up the link
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """Redeems a one-time link. If the person uses two-factor authentication, the next page asks for a code. Opening a link again in the same browser
    leads to the home page."""
    user = SignInLink.redeem(token)
    if user is not None and user.is_active:
        record_authentication(request, user, method="link")
        answer: HttpResponse = perform_login(request, Login(user=user, redirect_url=reverse("runs:list")))
        return answer
    if request.user.is_authenticated:
        return redirect("runs:list")
    return render(request, "accounts/link_spent.html", status=410)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("account_login")


@never_cache
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Shows which team the person has been invited to, and by whom. A signed-in person accepts with one click; anybody else signs in or signs up."""
    found = teams.open_invitation(token)
    if found is None:
        return render(request, "accounts/invitation_spent.html", status=410)
    member = request.user.is_authenticated and Membership.objects.filter(team=found.team, user=request.user).exists()
    if request.method == "POST" and request.user.is_authenticated:
        try:
            teams.join(request, request.user, found)
        except teams.TeamRefused as error:
            messages.error(request, str(error))
            return redirect("runs:list")
        switch(cast(Request, request), found.team)
        messages.success(request, f"You are in {found.team} as {found.role} and work in it now." if not member else f"You work in {found.team} now.")
        return redirect("runs:list")
    if not request.user.is_authenticated:
        request.session[teams.INVITED] = str(found.pk)
    context = {"invitation": found, "member": member, "next": request.path}
    return render(request, "accounts/invitation.html", context)
