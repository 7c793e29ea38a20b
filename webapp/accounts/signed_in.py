"""The request of somebody who is signed in, as types: what views behind `login_required`, and operations of the API, may rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import HttpRequest

if TYPE_CHECKING:
    from django_htmx.middleware import HtmxDetails

    from webapp.accounts.models import Team, User
    from webapp.accounts.tokens import TokenGrant


class Request(HttpRequest):
    """Django makes the request, and our middleware sets what is declared here; nothing makes an object of this class."""

    user: User
    team: Team
    htmx: HtmxDetails
    grant: TokenGrant | None  # where the request came by a token
