"""Signing in and out, and one's own account."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts.models import Membership, SignInLink


def _next(request: HttpRequest) -> str:
    """Where to go after signing in; only a place of this site."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    allowed = url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return wanted if allowed else resolve_url("runs:list")


@never_cache
@require_http_methods(["GET"])  # not HEAD: looking at a link must not use it up
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """Redeems a one-time link. Opened again in the same browser it simply leads home."""
    user = SignInLink.redeem(token)
    if user is not None and user.is_active:
        login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        return redirect("runs:list")
    if request.user.is_authenticated:
        return redirect("runs:list")
    return render(request, "accounts/link_spent.html", status=410)


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        return redirect(_next(request))
    form = AuthenticationForm(request, data=request.POST or None)
    if request.method == "POST" and form.is_valid():
        login(request, form.get_user())
        return redirect(_next(request))
    return render(request, "accounts/sign_in.html", {"form": form, "next": _next(request)}, status=422 if form.errors else 200)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("accounts:sign_in")


@never_cache
@sensitive_post_parameters()
@login_required
@require_http_methods(["GET", "POST"])
def account(request: HttpRequest) -> HttpResponse:
    """One's name, password and teams."""
    had_password = request.user.has_usable_password()
    form_class = PasswordChangeForm if had_password else SetPasswordForm
    form = form_class(request.user, data=request.POST or None)
    if request.method == "POST" and form.is_valid():
        form.save()
        update_session_auth_hash(request, form.user)  # other browsers are signed out, this one is not
        messages.success(request, f"Password {'changed' if had_password else 'set'}. You can now sign in as {request.user.get_username()}.")
        return redirect("accounts:account")
    memberships = Membership.objects.filter(user=request.user).select_related("team").order_by("team__name")
    teams = [
        {"membership": membership, "members": Membership.objects.filter(team=membership.team).select_related("user").order_by("user__username")}
        for membership in memberships
    ]
    context = {"form": form, "had_password": had_password, "teams": teams}
    return render(request, "accounts/account.html", context, status=422 if form.errors else 200)
