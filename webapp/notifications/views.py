"""Manages a person's own webhooks and, for owners, those of the current team. The secret part of an address is never shown after it has been
saved."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts import audit
from webapp.accounts.access import has_right, require
from webapp.accounts.signed_in import Request
from webapp.notifications import announce
from webapp.notifications.addresses import AddressRefused, parsed, resolved
from webapp.notifications.models import STYLES, Delivery, Hook
from webapp.review.kinds import HOOKS

MOST = 20  # maximum number of hooks per team, and per person in a team
SHOWN = 5  # messages shown per hook


@login_required
@require_GET
def hooks(request: Request) -> HttpResponse:
    return _page(request, {"events": list(HOOKS), "style": STYLES[0][0]})


def _page(request: Request, typed: dict[str, Any], problem: str = "") -> HttpResponse:
    own = has_right(request, request.team, "own")
    lines: list[tuple[Hook, dict[str, Any]]] = [
        (hook, {"hook": hook, "shown": shown(hook.url), "deliveries": list(hook.deliveries.all()[:SHOWN]), "may": may(request, hook)})
        for hook in visible(request)
    ]
    context = {
        "mine": [line for hook, line in lines if hook.person_id is not None],
        "ours": [line for hook, line in lines if hook.person_id is None],
        "kinds": HOOKS.items(),
        "styles": STYLES,
        "owns": own,
        "typed": typed,
        "problem": problem,
    }
    return render(request, "notifications/hooks.html", context, status=422 if problem else 200)


def visible(request: Request) -> QuerySet[Hook]:
    """Returns the person's own hooks in the current team, followed by the team's hooks."""
    if not has_right(request, request.team, "view"):
        return Hook.objects.none()
    return Hook.objects.filter(Q(person=request.user) | Q(person=None), team=request.team.pk)


def may(request: Request, hook: Hook) -> bool:
    """Returns whether the person may change the hook. People may change their own hooks, and owners may also change the team's."""
    return hook.person_id == request.user.pk or (hook.person_id is None and has_right(request, hook.team_id, "own"))


def shown(url: str) -> str:
    """Returns the host and just enough of the rest to tell addresses apart, because the full address often contains a secret."""
    return f"{urlsplit(url).hostname}/…{url[-4:]}"


@login_required
@require_POST
def add(request: Request) -> HttpResponse:
    for_team = request.POST.get("whose") == "team"
    require(request, request.team, "own" if for_team else "act")
    typed: dict[str, Any] = {name: request.POST.get(name, "").replace("\0", "").strip() for name in ("name", "url", "style", "whose")}
    typed["events"] = [event for event in HOOKS if event in request.POST.getlist("event")]
    person = None if for_team else request.user
    try:
        if not typed["name"] or len(typed["name"]) > 60:
            raise AddressRefused("Give the webhook a name of at most 60 characters.")
        if typed["style"] not in dict(STYLES):
            raise AddressRefused("Choose what kind of webhook it is.")
        if not typed["events"]:
            raise AddressRefused("Choose at least one event.")
        resolved(parsed(typed["url"]))
        if Hook.objects.filter(team=request.team.pk, person=person).count() >= MOST:
            raise AddressRefused(f"There are {MOST} webhooks already: delete one first.")
    except AddressRefused as refused:
        return _page(request, typed, str(refused))
    hook = Hook.objects.create(
        team_id=request.team.pk,
        person=person,
        name=typed["name"],
        url=typed["url"],
        style=typed["style"],
        events=typed["events"],
        created_by=request.user,
    )
    if for_team:
        audit.record(request, request.team, "hook.made", hook.name, {"host": urlsplit(hook.url).hostname or "", "events": hook.events})
    messages.success(request, f"{hook.name} is added. Send a test to see whether it works.")
    return redirect("notifications:hooks")


def _hook(request: Request, hook_id: uuid.UUID) -> Hook:
    """Returns a hook that the person may change. Members are denied access to the team's hooks, and any other hook is reported as not found."""
    hook = visible(request).filter(pk=hook_id).first()
    if hook is None:
        raise Http404("no such webhook")
    require(request, hook.team_id, "own" if hook.person_id is None else "act")
    return hook


@login_required
@require_POST
def change(request: Request, hook_id: uuid.UUID) -> HttpResponse:
    """Enables or disables the hook and sets its events."""
    hook = _hook(request, hook_id)
    hook.active = request.POST.get("active") == "1"
    hook.events = [event for event in HOOKS if event in request.POST.getlist("event")]
    hook.save(update_fields=["active", "events"])
    if hook.person_id is None:
        audit.record(request, request.team, "hook.changed", hook.name, {"active": hook.active, "events": hook.events})
    messages.success(request, f"{hook.name} is {'on' if hook.active else 'off'}.")
    return redirect("notifications:hooks")


@login_required
@require_POST
def test(request: Request, hook_id: uuid.UUID) -> HttpResponse:
    hook = _hook(request, hook_id)
    with transaction.atomic():
        if Delivery.objects.filter(hook=hook, event=announce.TEST, state="waiting").exists():
            messages.info(request, f"A test of {hook.name} is already on its way.")
        else:
            announce.test(hook)
            messages.success(request, f"A test of {hook.name} is on its way: reload this page to see how it went.")
    return redirect("notifications:hooks")


@login_required
@require_POST
def delete(request: Request, hook_id: uuid.UUID) -> HttpResponse:
    hook = _hook(request, hook_id)
    if hook.person_id is None:
        audit.record(request, request.team, "hook.deleted", hook.name, {})
    hook.delete()
    messages.success(request, f"{hook.name} is deleted.")
    return redirect("notifications:hooks")
