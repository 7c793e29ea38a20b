"""Context processor for the team switcher in the page frame, the account tabs and the sign-in options."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import SimpleLazyObject

from webapp.accounts.access import teams_with
from webapp.accounts.teams import pending_invitation

TABS = [("accounts:account", "Account"), ("password", "Password"), ("mfa_index", "Two-factor"), ("accounts:tokens", "Tokens")]
EMAIL = ("account_email", "Email")


def accounts(request: HttpRequest) -> dict[str, Any]:
    # All values are lazy and are queried only when a template uses them, because error pages must render even if the database is down.
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        invited = SimpleLazyObject(lambda: pending_invitation(request))
        return {"mail": settings.MAIL, "invited": invited, "may_sign_up": SimpleLazyObject(lambda: settings.SIGN_UP_OPEN or bool(invited))}
    return {
        "mail": settings.MAIL,
        "my_teams": SimpleLazyObject(lambda: list(teams_with(user).order_by("name"))),
        "account_tabs": _tabs(request) if request.path.startswith("/account/") else [],
    }


def _tabs(request: HttpRequest) -> list[dict[str, Any]]:
    user = request.user
    password = "account_change_password" if user.is_authenticated and user.has_usable_password() else "account_set_password"
    links = [(reverse(password if name == "password" else name), label) for name, label in [*TABS, *([EMAIL] if settings.MAIL else [])]]
    here = max((href for href, _ in links if request.path.startswith(href)), key=len, default="")
    return [{"href": href, "label": label, "current": href == here} for href, label in links]
