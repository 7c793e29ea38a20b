"""`manage.py verifier_login` prints the DATABASE_URL for GPU hosts. Its role may only take jobs and write reports."""

from __future__ import annotations

import os
import secrets
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from django.core.management.base import BaseCommand, CommandError
from django.db import ProgrammingError

from webapp import roles
from webapp.environment import role_name
from webapp.fleet.enrolling import keep_url


class Command(BaseCommand):
    help = (
        "Give the verifiers of other hosts a new password in the database of DATABASE_URL. Print the URL that they need, and keep it for the page"
        " “Connect a GPU”. The former one ends."
    )

    def handle(self, **options: Any) -> None:
        url = os.environ.get("DATABASE_URL")
        if not url:
            raise CommandError("the embedded Postgres listens to this machine alone; for GPU hosts set DATABASE_URL to a server that they reach")
        password = secrets.token_urlsafe(32)
        try:
            roles.log_in("verifier", password)
            roles.grant()
        except ProgrammingError as error:
            raise CommandError(
                f"the role {role_name('verifier')} cannot be made ({str(error).strip()}): DATABASE_URL's own role needs CREATEROLE"
            ) from None
        found = as_role(url, role_name("verifier"), password)
        keep_url(found)  # for the “Connect a GPU” page
        self.stdout.write(found)


def as_role(url: str, name: str, password: str) -> str:
    """Returns the URL of the same database with another user's credentials."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{name}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}"))
