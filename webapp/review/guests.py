"""People who came by a share link, without an account: on the shared run's own pages, and nowhere else, the request's user is a `Guest`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from webapp.accounts.access import grant_of
from webapp.review import shares
from webapp.review.models import Share
from webapp.runs.access import visible_runs

SESSION_KEY = "shares"  # {run: share}
MOST_HELD = 50  # links that one browser remembers
HEADERS = {"X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer"}


class Guest(AnonymousUser):
    """Whoever has the link: may view `share.run`, and has no role anywhere. `is_active` is false, so no team's right is ever theirs."""

    last_team_id = personal_team_id = None

    def __init__(self, share: Share):
        super().__init__()
        self.share = share

    def __str__(self) -> str:
        return "guest"

    @property
    def is_authenticated(self) -> bool:
        """So that the few views that are open to guests need no other decorator than all views have."""
        return True

    @property
    def is_anonymous(self) -> bool:
        return False


class Guests:
    """Deny by default: only the views in `shares.GUEST_VIEWS`, only by GET, only for the run of a link in force that this browser opened."""

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

    def process_view(self, request: HttpRequest, view, arguments, named) -> HttpResponse | None:
        if request.resolver_match.view_name not in shares.GUEST_VIEWS or request.method not in ("GET", "HEAD") or grant_of(request):
            return None
        run_id = str(named["run_id"])
        held = request.session.get(SESSION_KEY, {}).get(run_id)
        if held is None or sees_anyway(request.user, run_id):
            return None
        share = shares.in_force(held, run_id)
        if share is None:
            # Somebody with an account gets the ordinary answer: the run is theirs to see or it is not.
            return None if request.user.is_authenticated else ended(request, Share.objects.filter(pk=held).first())
        request.user = Guest(share)
        return None


def sees_anyway(user, run_id: str) -> bool:
    return user.is_authenticated and visible_runs(user).filter(pk=run_id).exists()


def hold(request: HttpRequest, share: Share) -> None:
    """Remember in this browser that the link was opened."""
    held = dict(request.session.get(SESSION_KEY, {}))
    held.pop(str(share.run_id), None)
    held[str(share.run_id)] = str(share.pk)
    request.session[SESSION_KEY] = dict(list(held.items())[-MOST_HELD:])


def ended(request: HttpRequest, share: Share | None) -> HttpResponse:
    return untold(render(request, "review/share_ended.html", {"share": share}, status=410))


def protected(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """What is shown through a link is kept by no cache in between either."""
    # By the type alone: this may run in the event loop, and asking a user that nobody has looked at yet would ask the database there.
    if type(getattr(request, "user", None)) is Guest:
        untold(response).headers.setdefault("Cache-Control", "private, no-store")
    return response


def untold(response: HttpResponse) -> HttpResponse:
    """Found by no search engine, told to no other site."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response
