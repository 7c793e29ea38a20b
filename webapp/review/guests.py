"""Handles visitors who came through a share link and have no account. The request's user is a `Guest` only on pages of the shared run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from webapp.accounts.access import grant_of
from webapp.accounts.models import User
from webapp.review import shares
from webapp.review.models import Share
from webapp.runs.access import visible_runs

SESSION_KEY = "shares"  # {run: share}
MOST_HELD = 50  # maximum number of links remembered per browser
HEADERS = {"X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer"}


class Guest(AnonymousUser):
    """A visitor with a share link, who may view `share.run` and has no role in any team. `is_active` is false, so no team rights apply."""

    last_team_id = personal_team_id = None

    def __init__(self, share: Share):
        super().__init__()
        self.share = share

    def __str__(self) -> str:
        return "guest"

    @property
    def is_authenticated(self) -> bool:  # type: ignore[override]  # the only anonymous user that passes for a signed-in one
        """Returns True, so that the few views that are open to guests can use the same decorator as all others."""
        return True

    @property
    def is_anonymous(self) -> bool:  # type: ignore[override]  # as above
        return False


class Guests:
    """Middleware that denies access by default. A guest can reach only the views in `shares.GUEST_VIEWS`, only by GET, and only for a run whose share
    link was opened in this browser and is still valid."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        if iscoroutinefunction(self):
            return self._asynchronous(request)
        return protected(request, self.get_response(request))

    async def _asynchronous(self, request: HttpRequest) -> Any:
        return protected(request, await self.get_response(request))

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponse], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> HttpResponse | None:
        if (
            request.resolver_match is None
            or request.resolver_match.view_name not in shares.GUEST_VIEWS
            or request.method not in ("GET", "HEAD")
            or grant_of(request)
        ):
            return None
        run_id = str(named["run_id"])
        held = request.session.get(SESSION_KEY, {}).get(run_id)
        if held is None or sees_anyway(request.user, run_id):
            return None
        share = shares.in_force(held, run_id)
        if share is None:
            # People with accounts get the normal response, subject to their own permissions.
            return None if request.user.is_authenticated else ended(request, Share.objects.filter(pk=held).first())
        request.user = Guest(share)
        return None


def sees_anyway(user: User | AnonymousUser, run_id: str) -> bool:
    return user.is_authenticated and visible_runs(user).filter(pk=run_id).exists()


def hold(request: HttpRequest, share: Share) -> None:
    """Records in the browser's session that the link was opened."""
    held = dict(request.session.get(SESSION_KEY, {}))
    held.pop(str(share.run_id), None)
    held[str(share.run_id)] = str(share.pk)
    request.session[SESSION_KEY] = dict(list(held.items())[-MOST_HELD:])


def ended(request: HttpRequest, share: Share | None) -> HttpResponse:
    return untold(render(request, "review/share_ended.html", {"share": share}, status=410))


def protected(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Keeps pages that are shown through a link out of shared caches."""
    # Check only the type, because this can run in the event loop, where evaluating a lazy user would query the database.
    if type(getattr(request, "user", None)) is Guest:
        untold(response).headers.setdefault("Cache-Control", "private, no-store")
    return response


def untold(response: HttpResponse) -> HttpResponse:
    """Keeps the page out of search engines and hides its URL from other sites."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response
