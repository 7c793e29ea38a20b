"""Records sign-ins and credential changes in the audit log, based on Django's and allauth's signals."""

from __future__ import annotations

from typing import Any

from allauth.account import signals as account
from allauth.mfa import signals as two_factor
from allauth.mfa.models import Authenticator
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest

from webapp.accounts import audit
from webapp.accounts.lost_access import access_changed
from webapp.accounts.models import User


@receiver(user_logged_in)
def signed_in(request: HttpRequest, user: User, **_: Any) -> None:
    records = request.session.get("account_authentication_methods") or []
    audit.record(request if hasattr(request, "user") else user, None, "sign_in", detail={"by": " + ".join(r["method"] for r in records) or "link"})


@receiver(user_logged_out)
def signed_out(request: HttpRequest, user: User | None, **_: Any) -> None:
    if user is not None:
        audit.record(request, None, "sign_out")
        access_changed()  # closes the sockets of this session


@receiver(user_login_failed)
def refused(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """Records the name only if such a user exists, because otherwise strangers could write arbitrary text to the log."""
    user = User.objects.filter(username__iexact=credentials.get("username") or "").first()
    if user is not None and request is not None:
        _refused(request, user, "password")


@receiver(two_factor.authentication_failed)
def code_refused(request: HttpRequest, user: User, **_: Any) -> None:
    _refused(request, user, "code")


def _refused(request: HttpRequest, user: User, what: str) -> None:
    for team in user.teams.all():
        audit.record(request, team, "sign_in.refused", user.get_username(), {"wrong": what})


@receiver([account.password_changed, account.password_set, account.password_reset])
def password_changed(request: HttpRequest, user: User, **_: Any) -> None:
    for team in user.teams.all():
        audit.record(request, team, "password.changed", user.get_username())


@receiver(two_factor.authenticator_added)
def two_factor_on(request: HttpRequest, authenticator: Authenticator, **_: Any) -> None:
    if authenticator.type == Authenticator.Type.TOTP:
        audit.record(request, None, "two_factor.on")


@receiver(two_factor.authenticator_removed)
def two_factor_off(request: HttpRequest, authenticator: Authenticator, **_: Any) -> None:
    if authenticator.type == Authenticator.Type.TOTP:
        audit.record(request, None, "two_factor.off")


@receiver(two_factor.authenticator_reset)
def codes_made_anew(request: HttpRequest, **_: Any) -> None:
    audit.record(request, None, "two_factor.codes")
