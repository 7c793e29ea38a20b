"""Context processor: what the frame of every page needs."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from webapp.fleet.models import ONLINE_FOR, Device
from webapp.llm.models import Letter

# (key for the keyboard, URL name, label, path prefixes that it is current for)
NAVIGATION = [
    ("g r", "runs:list", "Runs", ("/runs/",)),
    ("g s", "tasks:submit", "Submit", ("/submit/",)),
    ("g v", "tasks:verify", "Verify", ("/verify/",)),
    ("g t", "tasks:list", "Tasks", ("/tasks/",)),
    ("g l", "leaderboard:table", "Leaderboard", ("/leaderboard/",)),
    ("g e", "arena:list", "Arena", ("/arena/",)),
    ("g k", "knowledge:strategies", "Knowledge", ("/strategies/", "/documents/")),
    ("g m", "llm:models", "Models", ("/models/", "/mailbox/")),
    ("g d", "fleet:devices", "Devices", ("/devices/",)),
]


def unprotected_devices() -> list[dict[str, str]]:
    """Devices that run strangers' code now without bubblewrap, each with what its doctor says about that."""
    recent = Device.objects.filter(heartbeat_at__gt=timezone.now() - ONLINE_FOR).only("name", "device", "doctor")
    return [{"name": str(device), "protection": protection_words(device.doctor)} for device in recent if not sandboxed(device.doctor)]


def sandboxed(doctor: dict) -> bool:
    return (doctor.get("protection") or {}).get("sandbox") == "bubblewrap"


def protection_words(doctor: dict) -> str:
    """The layers that do hold, for a banner: "process isolation with rlimits, seccomp"."""
    protection = doctor.get("protection") or {}
    if not protection:
        return "it has not said what confines them"
    return "process isolation with " + (", ".join(protection.get("layers") or []) or "nothing more")


def waiting_letters(user) -> int:
    """Prompts of the user's teams that wait for a person."""
    return Letter.objects.filter(team__in=user.teams.all(), run__isnull=False, reply=None, withdrawn_at=None).count()


def frame(request: HttpRequest) -> dict:
    current = request.path
    navigation = [
        {"key": key, "url": url, "label": label, "current": current.startswith(prefixes) or (url == "runs:list" and current == "/")}
        for key, url, label, prefixes in NAVIGATION
    ]
    user = getattr(request, "user", None)
    # An error page has to appear even where the database does not answer: nothing is asked before the template uses it.
    return {
        "navigation": navigation if user is not None and user.is_authenticated else [],
        "unprotected": SimpleLazyObject(unprotected_devices) if user is not None and user.is_authenticated else [],
        "waiting_letters": SimpleLazyObject(lambda: waiting_letters(user)) if user is not None and user.is_authenticated else 0,
    }
