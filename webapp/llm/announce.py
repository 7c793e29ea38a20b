"""Announces the orchestrator's model profiles to the web process, which cannot read them itself because it has no keys."""

from __future__ import annotations

import asyncio
import logging

from django.db import DatabaseError, transaction
from django.utils import timezone
from psycopg_pool import PoolTimeout

from agents.llm.models import Models
from webapp.database import in_thread
from webapp.llm.models import Announcement, Profile

log = logging.getLogger(__name__)
SECONDS = 10.0
SHOWN = ("prices", "limits", "max_tokens", "context_tokens", "temperature", "file", "record")


async def keep_announcing(models: Models) -> None:
    """Announces until cancelled. A temporary database outage is logged and does not stop the loop."""
    while True:
        try:
            await in_thread(announce)(models)
        except (DatabaseError, PoolTimeout) as error:
            log.warning("the profiles could not be announced: %s", str(error).strip()[:200])
        await asyncio.sleep(SECONDS)


def announce(models: Models) -> None:
    """Stores the current profiles and deletes those that no longer exist. Keys are never stored. The row records only whether the key's environment
    variable is set."""
    profiles = models.profiles()
    with transaction.atomic():
        Announcement.objects.update_or_create(
            pk=1, defaults={"file": models.file.name if models.file else "", "problem": models.problem, "at": timezone.now()}
        )
        Profile.objects.exclude(name__in=profiles).delete()
        for name, profile in profiles.items():
            variable = getattr(profile, "api_key_env", None) or ""
            described = profile.model_dump(mode="json")
            known = {
                "kind": profile.kind,
                "model": described.get("model", "")[:200],
                "base_url": described.get("base_url", "")[:300],
                "key_variable": variable,
                "key_is_set": bool(variable and models.environment.get(variable)),
                "details": {key: described[key] for key in SHOWN if described.get(key) is not None},
            }
            Profile.objects.update_or_create(name=name, defaults=known)
