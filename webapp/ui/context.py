"""Context processor: what the frame of every page needs."""

from __future__ import annotations

from typing import NamedTuple

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from verifier.confinement.probe import waived
from webapp.fleet.models import ONLINE_FOR, Device
from webapp.llm.models import Letter
from webapp.review.guests import share_of
from webapp.review.notices import unread


class Place(NamedTuple):
    key: str  # typed anywhere: "g r"
    url: str  # name of the URL
    label: str
    prefixes: tuple[str, ...]  # paths on which it is the current one
    count: str = ""  # name of the context variable with the number that waits there


# Four destinations stand open in the bar; the group beside them holds what most people never need. The last part of the bar is one's own.
NAVIGATION: list[tuple[str, list[Place]]] = [
    (
        "",
        [
            Place("g r", "runs:list", "Runs", ("/runs/",)),
            Place("g s", "tasks:submit", "Submit", ("/submit/", "/verify/", "/tasks/")),
            Place("g l", "leaderboard:table", "Leaderboard", ("/leaderboard/",)),
            Place("g i", "review:overview", "Review", ("/review/",)),
        ],
    ),
    (
        "Advanced",
        [
            Place("g c", "compare:compare", "Compare", ("/compare/",)),
            Place("g e", "arena:list", "Arena", ("/arena/",)),
            Place("g k", "knowledge:strategies", "Strategies", ("/strategies/",)),
            Place("g o", "knowledge:documents", "Documents", ("/documents/",)),
            Place("g m", "llm:models", "Models", ("/models/",)),
            Place("g b", "llm:mailbox", "Mailbox", ("/mailbox/",), "waiting_letters"),
            Place("g d", "fleet:devices", "Devices", ("/devices/",)),
            Place("g x", "api_reference", "API", ("/api/",)),
        ],
    ),
]
# Pages with a key that are reached from a neighbour instead of the bar.
ELSEWHERE = [
    Place("g t", "tasks:list", "Tasks", ()),
    Place("g v", "tasks:verify", "Verify my program", ()),
    Place("g n", "review:notifications", "Notifications", ()),
]


def unprotected_devices() -> list[dict[str, str]]:
    """Devices without bubblewrap, each with what its doctor says about that: `needs` of those that run nothing until they have it."""
    recent = Device.objects.filter(heartbeat_at__gt=timezone.now() - ONLINE_FOR).only("name", "device", "doctor")
    return [
        {"name": str(device), "protection": protection_words(device.doctor), "needs": device.needs_sandbox}
        for device in recent
        if not sandboxed(device.doctor)
    ]


def sandboxed(doctor: dict) -> bool:
    return (doctor.get("protection") or {}).get("sandbox") == "bubblewrap"


def protection_words(doctor: dict) -> str:
    """The layers that do hold, for a banner: "process isolation with rlimits, seccomp"."""
    protection = doctor.get("protection") or {}
    if not protection:
        return "it hasn't reported its sandbox"
    return "process isolation with " + (", ".join(protection.get("layers") or []) or "nothing more")


def waiting_letters(user) -> int:
    """Prompts of the user's teams that wait for a person."""
    return Letter.objects.filter(team__in=user.teams.all(), run__isnull=False, reply=None, withdrawn_at=None).count()


def navigation(path: str) -> list[dict]:
    """The groups with their places that are served here, each with its address."""
    groups = []
    for label, places in NAVIGATION:
        items = [item for place in places if (item := _item(place, path))]
        groups.append(
            {"label": label, "items": items, "current": any(item["current"] for item in items), "counts": [i["count"] for i in items if i["count"]]}
        )
    return groups


def _item(place: Place, path: str) -> dict | None:
    try:
        href = reverse(place.url)
    except NoReverseMatch:
        return None
    current = path.startswith(place.prefixes) or path == href
    return {"key": place.key, "href": href, "label": place.label, "current": current, "count": place.count}


def frame(request: HttpRequest) -> dict:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated or share_of(user):
        return {"navigation": [], "elsewhere": [], "unprotected": [], "waiting_letters": 0, "waived": waived()}
    # An error page has to appear even where the database does not answer: nothing is asked before the template uses it.
    return {
        "navigation": navigation(request.path),
        "elsewhere": [item for place in ELSEWHERE if (item := _item(place, request.path))],
        "unprotected": SimpleLazyObject(unprotected_devices),
        "waiting_letters": SimpleLazyObject(lambda: waiting_letters(user)),
        "waived": waived(),
        "unread_notifications": SimpleLazyObject(lambda: unread(user)),
    }
