"""Webhooks: a person's own, and the current team's, which its owners manage. What an address hides is shown to nobody again."""

from __future__ import annotations

import uuid
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts import audit
from webapp.accounts.access import has_right, require
from webapp.notifications import announce
from webapp.notifications.addresses import AddressRefused, parsed, resolved
from webapp.notifications.models import EVENTS, STYLES, Delivery, Hook

MOST = 20  # hooks of a team, and of a person in it
SHOWN = 5  # messages of each hook


@login_required
@require_GET
def hooks(request: HttpRequest) -> HttpResponse:
    return _page(request, {"events": list(EVENTS), "style": STYLES[0][0]})


def _page(request: HttpRequest, typed: dict, problem: str = "") -> HttpResponse:
    own = has_right(request, request.team, "own")
    lines = [
        {"hook": hook, "shown": shown(hook.url), "deliveries": list(hook.deliveries.all()[:SHOWN]), "may": may(request, hook)}
        for hook in visible(request)
    ]
    context = {
        "mine": [line for line in lines if line["hook"].person_id is not None],
        "ours": [line for line in lines if line["hook"].person_id is None],
        "kinds": EVENTS.items(),
        "styles": STYLES,
        "owns": own,
        "typed": typed,
        "problem": problem,
    }
    return render(request, "notifications/hooks.html", context, status=422 if problem else 200)


def visible(request: HttpRequest) -> QuerySet[Hook]:
    """The person's own in the current team, and the team's."""
    if not has_right(request, request.team, "view"):
        return Hook.objects.none()
    return Hook.objects.filter(Q(person=request.user) | Q(person=None), team=request.team.pk)


def may(request: HttpRequest, hook: Hook) -> bool:
    """Whether the person may change it: their own, or their team's as an owner."""
    return hook.person_id == request.user.pk or (hook.person_id is None and has_right(request, hook.team_id, "own"))


def shown(url: str) -> str:
    """The host, and as much of the rest as tells one address from another: it often holds a secret."""
    return f"{urlsplit(url).hostname}/…{url[-4:]}"


@login_required
@require_POST
def add(request: HttpRequest) -> HttpResponse:
    for_team = request.POST.get("whose") == "team"
    require(request, request.team, "own" if for_team else "act")
    typed = {name: request.POST.get(name, "").replace("\0", "").strip() for name in ("name", "url", "style", "whose")}
    typed["events"] = [event for event in EVENTS if event in request.POST.getlist("event")]
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


def _hook(request: HttpRequest, hook_id: uuid.UUID) -> Hook:
    """One that the person may change; for the team's as a member a refusal, for any other that there is none."""
    hook = visible(request).filter(pk=hook_id).first()
    if hook is None:
        raise Http404("no such webhook")
    require(request, hook.team_id, "own" if hook.person_id is None else "act")
    return hook


@login_required
@require_POST
def change(request: HttpRequest, hook_id: uuid.UUID) -> HttpResponse:
    """Switches it on or off, and chooses its events."""
    hook = _hook(request, hook_id)
    hook.active = request.POST.get("active") == "1"
    hook.events = [event for event in EVENTS if event in request.POST.getlist("event")]
    hook.save(update_fields=["active", "events"])
    if hook.person_id is None:
        audit.record(request, request.team, "hook.changed", hook.name, {"active": hook.active, "events": hook.events})
    messages.success(request, f"{hook.name} is {'on' if hook.active else 'off'}.")
    return redirect("notifications:hooks")


@login_required
@require_POST
def test(request: HttpRequest, hook_id: uuid.UUID) -> HttpResponse:
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
def delete(request: HttpRequest, hook_id: uuid.UUID) -> HttpResponse:
    hook = _hook(request, hook_id)
    if hook.person_id is None:
        audit.record(request, request.team, "hook.deleted", hook.name, {})
    hook.delete()
    messages.success(request, f"{hook.name} is deleted.")
    return redirect("notifications:hooks")
