"""Additions by language models to the pages of runs: requests that wait for a person, and the profiles that people answer by hand."""

from __future__ import annotations

from django.db.models import Exists, OuterRef

from webapp.llm.models import Letter, Profile
from webapp.runs.models import Run
from webapp.runs.pages.additions import Wait

LETTER = Wait(
    "letter",
    Exists(Letter.objects.filter(run=OuterRef("pk"), reply=None, withdrawn_at=None)),
    "A model's request waits for a person.",
    "reply",
)


def mailboxes(run: Run) -> list[str]:
    """Returns the names of the profiles for whose requests the page offers a form for the reply."""
    return list(Profile.objects.filter(kind="mailbox").values_list("name", flat=True))
