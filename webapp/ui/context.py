"""Provides the context processor for the frame that all pages share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from verifier.confinement.probe import waived
from webapp.accounts.models import ApiToken, Team, User
from webapp.arena.models import Arena
from webapp.fleet.models import ONLINE_FOR, Device
from webapp.knowledge.models import Document, Learned
from webapp.learning.folders import is_used
from webapp.llm.models import Letter, Profile
from webapp.review.notices import unread
from webapp.review.shares import share_of


@dataclass(frozen=True)
class Place:
    key: str  # keys that open it from anywhere, such as "g r"
    url: str  # name of the URL pattern
    label: str
    prefixes: tuple[str, ...]  # paths with one of these prefixes make this the current place
    about: str = ""  # a sentence on its purpose
    used: str = ""  # column of `in_use` that must be true for the bar to show it, or "" to show it always
    count: str = ""  # name of the context variable that holds the number of waiting items


# The bar always shows four destinations.
DESTINATIONS = [
    Place("g r", "runs:list", "Runs", ("/runs/",), "What was submitted, and how fast it is now."),
    Place("g s", "tasks:submit", "Submit", ("/submit/", "/verify/", "/tasks/"), "Try a model."),
    Place("g l", "leaderboard:table", "Leaderboard", ("/leaderboard/",), "What works best on which tasks and devices."),
    Place("g i", "review:overview", "Review", ("/review/",), "Comments and verdicts of the team."),
]
# Pages that most people never need. The bar shows only those that the team uses. The `ui:advanced` page lists all of them.
ADVANCED = [
    Place("g d", "fleet:devices", "Devices", ("/devices/",), "What each verifier's host can do, and how to connect a GPU."),
    Place(
        "g b", "llm:mailbox", "Mailbox", ("/mailbox/",), "Requests that a person answers in place of a language model.", "mailbox", "waiting_letters"
    ),
    Place("g m", "llm:models", "Models", ("/models/",), "Language models that the orchestrator knows, and what they cost.", "models"),
    Place("g e", "arena:list", "Arena", ("/arena/",), "Several workflows on the same tasks with the same budget.", "arenas"),
    Place("g k", "knowledge:strategies", "Strategies", ("/strategies/",), "The optimizations that agents know, and what they gained.", "learned"),
    Place("g o", "knowledge:documents", "Documents", ("/documents/",), "Texts of your team that agents look up and cite.", "documents"),
    Place("g h", "learning:list", "Learning", ("/learning/",), "Trainings of Coders: curves, and every program with its verdict.", "learning"),
    Place("g x", "api_reference", "API", ("/api/",), "Everything that the pages do, for programs.", "tokens"),
    Place("g c", "compare:compare", "Compare", ("/compare/",), "Two to six runs or candidates side by side. Tick them in Runs.", "never"),
]
# Pages that have a keyboard shortcut but are linked from a related page instead of the bar.
ELSEWHERE = [
    Place("g t", "tasks:list", "Tasks", (), "Models that your team keeps, and suites of them."),
    Place("g v", "tasks:verify", "Verify my program", (), "Measure a program of your own against its task."),
    Place("g n", "review:notifications", "Notifications", (), "What happened to things that you follow."),
]


def in_use(user: User, team: Team | None) -> dict[str, bool]:
    """Return which advanced pages have content created by the team, using a single statement with one index lookup per page."""
    if not team:  # the person has left their last team
        return {}
    exists = {
        "arenas": Arena.objects.filter(team=team),
        "documents": Document.objects.filter(team=team),
        "learned": Learned.objects.filter(team=team),
        "mailbox": Letter.objects.filter(team__in=user.teams.all(), run__isnull=False),
        "models": Profile.objects.all(),
        "tokens": ApiToken.objects.filter(user=user, revoked_at=None),
    }
    found = Team.objects.filter(pk=team.pk).values(**{f"has_{name}": Exists(rows) for name, rows in exists.items()}).first() or {}
    return {name: bool(found.get(f"has_{name}")) for name in exists} | {"learning": is_used()}


def unprotected_devices() -> list[dict[str, str]]:
    """Return the devices without bubblewrap, with the protection that their doctor reports. `needs` is set if they refuse to run anything without
    it."""
    recent = Device.objects.filter(heartbeat_at__gt=timezone.now() - ONLINE_FOR).only("name", "device", "doctor")
    return [
        {"name": str(device), "protection": protection_words(device.doctor), "needs": device.needs_sandbox}
        for device in recent
        if not sandboxed(device.doctor)
    ]


def sandboxed(doctor: dict[str, Any]) -> bool:
    return (doctor.get("protection") or {}).get("sandbox") == "bubblewrap"


def protection_words(doctor: dict[str, Any]) -> str:
    """Return the active protection layers for a banner, such as "process isolation with rlimits, seccomp"."""
    protection = doctor.get("protection") or {}
    if not protection:
        return "it hasn't reported its sandbox"
    return "process isolation with " + (", ".join(protection.get("layers") or []) or "nothing more")


def waiting_letters(user: User) -> int:
    """Return the number of prompts in the user's teams that are waiting for a person."""
    return Letter.objects.filter(team__in=user.teams.all(), run__isnull=False, reply=None, withdrawn_at=None).count()


def navigation(path: str, used: Callable[[], Mapping[str, bool]]) -> list[dict[str, Any]]:
    """Return the groups with the places that this installation serves, each with its URL.

    `used` returns the result of `in_use`. It is called only once, for the advanced group.
    """
    groups = [_group("", [item for place in DESTINATIONS if (item := item_of(place, path))])]
    known = used()
    shown = [item for place in ADVANCED if (item := item_of(place, path)) and (not place.used or known.get(place.used) or item["current"])]
    return [*groups, _group("Advanced", shown)]


def _group(label: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"label": label, "items": items, "current": any(item["current"] for item in items), "counts": [i["count"] for i in items if i["count"]]}


def item_of(place: Place, path: str = "") -> dict[str, Any] | None:
    """Return the menu item, or None if this installation doesn't serve the place."""
    try:
        href = reverse(place.url)
    except NoReverseMatch:
        return None
    current = path.startswith(place.prefixes) or path == href
    return {"key": place.key, "href": href, "label": place.label, "about": place.about, "current": current, "count": place.count, "used": place.used}


def elsewhere(path: str, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the places that have a keyboard shortcut but are not currently shown in the bar."""
    shown = {item["key"] for group in groups for item in group["items"]}
    return [item for place in [*ADVANCED, *ELSEWHERE] if place.key not in shown and (item := item_of(place, path))]


def frame(request: HttpRequest) -> dict[str, Any]:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated or share_of(user):
        return {"navigation": [], "elsewhere": [], "unprotected": [], "waiting_letters": 0, "waived": waived()}
    # Error pages must render even without a database, so nothing is queried until the template uses it.
    groups = SimpleLazyObject(lambda: navigation(request.path, lambda: in_use(user, getattr(request, "team", None))))
    return {
        "navigation": groups,
        "elsewhere": SimpleLazyObject(lambda: elsewhere(request.path, list(groups))),
        "unprotected": SimpleLazyObject(unprotected_devices),
        "waiting_letters": SimpleLazyObject(lambda: waiting_letters(user)),
        "waived": waived(),
        "unread_notifications": SimpleLazyObject(lambda: unread(user)),
    }
