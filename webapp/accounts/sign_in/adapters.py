"""Adapters for django-allauth that decide who may sign up, how a new account is set up, and how second-factor secrets are stored."""

from __future__ import annotations

import base64
import hashlib
import logging
from smtplib import SMTPException
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.internal.ratelimit import get_ip
from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet, InvalidToken
from django import forms
from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from webapp.accounts import teams
from webapp.accounts.audit import client_address
from webapp.accounts.models import User
from webapp.accounts.sign_in import known_browser
from webapp.accounts.sign_in.second_factor import SecretLost

log = logging.getLogger(__name__)


class AccountAdapter(DefaultAccountAdapter):
    error_messages = DefaultAccountAdapter.error_messages | {
        "username_password_mismatch": "Wrong name or password.",
        "too_many_login_attempts": "Too many wrong attempts: wait five minutes, or use a one-time link.",
        "enter_current_password": "That isn't your current password.",
        "incorrect_password": "That isn't your password.",
        "rate_limited": "Too many attempts: wait a minute.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return settings.SIGN_UP_OPEN or teams.pending_invitation(request) is not None

    def save_user(self, request: HttpRequest, user: User, form: forms.Form, commit: bool = True) -> User:
        """Gives a new account its personal team and immediately adds it to the team to which it was invited."""
        with transaction.atomic():
            super().save_user(request, user, form, commit=True)
            user.make_personal_team()
            invitation = teams.pending_invitation(request)
            if invitation is not None:
                teams.join(request, user, invitation)
        return user

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Sends mail without raising errors, because an unresponsive mail server must not prevent anybody from signing in. The next page says that no
        mail was sent."""
        try:
            super().send_mail(template_prefix, email, context)
        except (OSError, SMTPException) as error:
            log.error("no mail was sent: %s", type(error).__name__)  # never log the address
            if self.request is not None:
                messages.error(self.request, "The mail server does not answer: no mail was sent. Try again later, or ask who runs this installation.")

    def get_client_ip(self, request: HttpRequest) -> str:
        """Returns the key under which attempts are counted: an address, or a browser in which this person has signed in before."""
        known = known_browser.number(request, request.POST.get("login", "")) if request.method == "POST" else ""
        return f"browser-{known}" if known else client_address(request) or "unknown"

    def is_safe_url(self, url: str | None) -> bool:
        try:
            return bool(super().is_safe_url(url))
        except ValueError:  # not an address
            return False

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Counts attempts by name and address together. If attempts were counted by name alone, a stranger could lock the account."""
        return f"{super()._get_login_attempts_cache_key(request, **credentials)}:{get_ip(request)}"

    def post_login(self, request: HttpRequest, user: User, **options: Any) -> HttpResponse:
        response: HttpResponse = super().post_login(request, user, **options)
        known_browser.remember(request, response, user)
        return response

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("accounts:account")


class TwoFactorAdapter(DefaultMFAAdapter):
    """Encrypts the secrets of authenticator apps with a key that is not in the database."""

    error_messages = DefaultMFAAdapter.error_messages | {
        "incorrect_code": "This code is wrong or already used: wait for the next one.",
    }

    def encrypt(self, text: str) -> str:
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        try:
            return _fernet().decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            raise SecretLost("a second factor was encrypted by another SECRET_KEY") from None

    def get_totp_label(self, user: User) -> str:
        return user.get_username()


def _fernet() -> Fernet:
    key = hashlib.sha256(b"stitchwork two-factor\0" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))
