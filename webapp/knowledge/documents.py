"""Stores documents, and rebuilds their passages whenever the text changes."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from agents.knowledge import pieces
from webapp.accounts.models import Team, User
from webapp.knowledge.models import Document, Passage

MOST_KIB = 512  # per document
MOST_DOCUMENTS = 500  # per team


def save(*, team: Team, user: User, title: str, kind: str, text: str, document: Document | None = None) -> Document:
    """Saves a new or changed document."""
    with transaction.atomic():
        kept = document or Document(team=team, created_by=user)
        kept.title, kept.kind, kept.text, kept.changed_by, kept.changed_at = title, kind, text, user, timezone.now()
        kept.save()
        kept.passages.all().delete()
        Passage.objects.bulk_create(
            Passage(document=kept, index=index, title=title, heading=piece.heading[:500], text=piece.text)
            for index, piece in enumerate(pieces(text, headings=kind == "markdown"))
        )
    return kept
