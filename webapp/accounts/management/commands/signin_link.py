"""`manage.py signin_link [USER]` prints a new one-time sign-in link. It replaces a password but not a second factor."""

from __future__ import annotations

import os
from typing import Any

from allauth.mfa.models import Authenticator
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.accounts import audit
from webapp.accounts.first_user import first_user, sign_in_path
from webapp.accounts.models import User


class Command(BaseCommand):
    help = "Print a fresh one-time sign-in link; earlier unused links of that user stop working."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", nargs="?", help="user name; default: the first user")
        parser.add_argument("--without-two-factor", action="store_true", help="turn the user's second factor off: for a lost phone and lost codes")

    def handle(self, user: str | None = None, without_two_factor: bool = False, **options: Any) -> None:
        try:
            person = User.objects.get(username=user) if user else first_user()
        except User.DoesNotExist:
            names = ", ".join(User.objects.order_by("id").values_list("username", flat=True)[:10])
            raise CommandError(f"there is no user {user!r}; there are: {names or 'none yet'}") from None
        if without_two_factor and Authenticator.objects.filter(user=person).delete()[0]:
            audit.record(person, None, "two_factor.off", detail={"by": "signin_link --without-two-factor"})
        base = os.environ.get("BASE_URL") or f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"
        self.stdout.write(base.rstrip("/") + sign_in_path(person))
