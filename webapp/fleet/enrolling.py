"""Connects a GPU host: the token shown on the operator's page, and the response to a host that presents it. No page shows a database password."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from django.core import signing

from webapp.accounts.first_user import first_user
from webapp.accounts.models import User
from webapp.environment import data_dir

VALID_SECONDS = 3600
SALT = "webapp.fleet.enrolling"


class NotEnrolled(ValueError):
    """Raised if the token is invalid or has expired. The message says what to do."""


@dataclass(frozen=True)
class Way:
    """How a GPU reaches this installation. `here`: the database accepts connections from this machine only; `ready`: an address that hosts can use is
    known."""

    here: bool
    ready: bool


def way() -> Way:
    here = not os.environ.get("DATABASE_URL")
    return Way(here, here or kept_url() is not None)


def url_file(data: Path | None = None) -> Path:
    """Returns the file in which `manage.py verifier_login` stores the URL for verifiers. Only this user can read it."""
    return (data or data_dir()) / "database" / "verifiers_url"


def kept_url() -> str | None:
    try:
        return url_file().read_text().strip() or None
    except OSError:
        return None


def keep_url(url: str) -> None:
    path = url_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(url)


def may_connect(user: User) -> bool:
    """Returns whether the user may connect a verifier. Only the operator of the installation may, because a verifier sees the sources of all
    teams."""
    return user.is_active and user.pk == first_user().pk


def token_for(user: User) -> str:
    """Returns a signed token that is valid for one hour, for any number of devices."""
    return signing.dumps(user.pk, salt=SALT, compress=False)


def reach(token: str) -> tuple[User, dict[str, str]]:
    """Returns the user who created the token, and what the host needs: `database_url`, or `data_dir` if the database accepts connections from this
    machine only. Raises `NotEnrolled`."""
    try:
        user = User.objects.filter(pk=signing.loads(token, salt=SALT, max_age=VALID_SECONDS)).first()
    except signing.SignatureExpired:
        raise NotEnrolled("This token has expired: reload the page “Connect a GPU” for another.") from None
    except signing.BadSignature:
        raise NotEnrolled("This token isn't one of this installation: copy the whole command from the page “Connect a GPU”.") from None
    if user is None or not may_connect(user):
        raise NotEnrolled("The person who made this token may no longer connect devices.")
    if way().here:
        return user, {"data_dir": str(data_dir())}
    url = kept_url()
    if url is None:
        raise NotEnrolled("Run `manage.py verifier_login` where the pages run first: it gives verifiers their own login.")
    return user, {"database_url": url}
