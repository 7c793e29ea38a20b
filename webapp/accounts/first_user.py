"""The owner of this machine, who is the installation's first user."""

from __future__ import annotations

from django.urls import reverse

from webapp.accounts.models import SignInLink, User

NAME = "owner"


def first_user() -> User:
    return User.objects.order_by("id").first() or User.with_team(NAME)


def sign_in_path(user: User) -> str:
    """Returns the path of a new one-time sign-in link."""
    return reverse("accounts:sign_in_link", args=[SignInLink.issue(user)])
