"""Share links, which let people without an account view one run until the link expires or is revoked."""

from __future__ import annotations

import uuid
from datetime import timedelta
from urllib.parse import urlsplit

from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.db.models import F
from django.urls import Resolver404, resolve, reverse
from django.utils import timezone

from webapp.accounts import alone, audit
from webapp.accounts.access import Asker, require, user_of
from webapp.accounts.lost_access import access_changed
from webapp.review.models import Share
from webapp.runs.models import Run

LIFETIMES = {1: "a day", 7: "a week", 30: "30 days", 90: "90 days"}
MOST_OPEN = 100  # maximum number of valid links per run
_SIGNER = Signer(salt="webapp.review.shares")

# The views of the shared run that a guest can open by GET. All other pages require an account.
GUEST_PLACES = frozenset({"runs:run", "runs:candidate", "runs:timeline", "diffs:diff"})
GUEST_VIEWS = GUEST_PLACES | {
    "runs:events", "runs:trace", "runs:message", "runs:call", "runs:search", "runs:fragment", "review:comments", "review:history",
    "runs:artefact", "runs:timeline_trace", "runs:task_source", "runs:best", "runs:program",
    "diffs:choose", "diffs:rows", "diffs:measured", "review:state", "review:placed",
}  # fmt: skip


def share_of(asker: Asker) -> Share | None:
    """Returns the link through which a visitor (`webapp.review.guests.Guest`) came, or None for people with an account."""
    return getattr(getattr(asker, "user", asker), "share", None)


def shared_run(asker: Asker) -> uuid.UUID | None:
    """Returns the run that a visitor may read, or None for people with an account."""
    share = share_of(asker)
    return share.run_id if share else None


class ShareRefused(ValueError):
    """Raised if a link cannot be created. The message says why."""


def make(asker: Asker, run: Run, *, place: str, days: int, comments: bool) -> Share:
    """Creates a link that opens at `place`, a URL below the run's own. Raises `ShareRefused`."""
    require(asker, run.team_id, "own")
    alone.refuse("shared links")
    if days not in LIFETIMES:
        raise ShareRefused("Choose how long the link works.")
    place = _place(run, place)
    with transaction.atomic():
        if Share.objects.filter(run=run, revoked_at=None, expires_at__gt=timezone.now()).count() >= MOST_OPEN:
            raise ShareRefused(f"This run already has {MOST_OPEN} working links: revoke one first.")
        share = Share.objects.create(
            team_id=run.team_id, run=run, place=place, comments=comments, created_by=user_of(asker), expires_at=timezone.now() + timedelta(days=days)
        )
        detail = {"run": str(run.pk), "share": str(share.pk), "days": days, "comments": comments, "place": place[:120]}
        audit.record(asker, run.team, "share.made", run.title, detail)
    return share


def revoke(asker: Asker, share: Share) -> None:
    require(asker, share.team_id, "own")
    with transaction.atomic():
        if Share.objects.filter(pk=share.pk, revoked_at=None).update(revoked_at=timezone.now()):
            access_changed()  # current viewers lose access immediately
            audit.record(asker, share.team, "share.revoked", share.run.title, {"run": str(share.run_id), "share": str(share.pk)})


def token_of(share: Share) -> str:
    return _SIGNER.sign(share.pk.hex)


def of_token(token: str) -> Share | None:
    """Returns the share, even if it is no longer valid, or None if this installation did not sign the token."""
    try:
        pk = uuid.UUID(_SIGNER.unsign(token))
    except (BadSignature, ValueError):
        return None
    return Share.objects.select_related("run", "created_by").filter(pk=pk).first()


def in_force(share_id: str | None, run_id: uuid.UUID | str) -> Share | None:
    found = Share.objects.select_related("created_by").filter(pk=share_id, run_id=run_id).first() if share_id else None
    return found if found is not None and found.state == "open" else None


def opened(share: Share) -> str:
    """Counts the visit and returns the URL to redirect to."""
    Share.objects.filter(pk=share.pk).update(opened=F("opened") + 1, last_opened_at=timezone.now())
    return reverse("runs:run", args=[share.run_id]) + share.place


def _place(run: Run, wanted: str) -> str:
    """Returns the part of a URL that follows the run's own, if guests may open it."""
    base = reverse("runs:run", args=[run.pk])
    parts = urlsplit(wanted.strip())
    path = parts.path or base
    if parts.scheme or parts.netloc or len(wanted) > 400:
        raise ShareRefused("The link has to open a page of this run.")
    try:
        match = resolve(path)
    except Resolver404:
        raise ShareRefused("There is no such page of this run.") from None
    if match.view_name not in GUEST_PLACES or str(match.kwargs.get("run_id")) != str(run.pk):
        raise ShareRefused("A link can open the run, one of its candidates or one of its timelines.")
    return path.removeprefix(base) + (f"?{parts.query}" if parts.query else "") + (f"#{parts.fragment}" if parts.fragment else "")
