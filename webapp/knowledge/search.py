"""Full-text search over a team's passages, using Postgres."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from agents.knowledge import words
from webapp.sql import statements

SQL = statements(__file__)

BEGIN, END = "\x02", "\x03"  # markers around highlighted text; no document can contain them
HEADLINE = f'StartSel={BEGIN}, StopSel={END}, MaxFragments=2, MaxWords=36, MinWords=12, FragmentDelimiter=" … "'
MOST_WORDS = 40  # limit on an agent's query


@dataclass(frozen=True)
class Hit:
    document: uuid.UUID
    index: int
    title: str
    heading: str
    text: str
    excerpt: SafeString  # with <mark> around the matches
    rank: float = 0.0


def search(teams: Iterable[uuid.UUID], text: str, limit: int) -> list[Hit]:
    """Returns the passages that match a query, best first. The query uses search-engine syntax: quoted phrases, `or`, and a minus before excluded
    words."""
    with connection.cursor() as cursor:
        given: dict[str, Any] = {"headline": HEADLINE, "text": text.replace("\x00", ""), "teams": list(teams), "limit": limit}
        cursor.execute(SQL["search"], given)
        return [Hit(of, at, title, head, text, _marked(excerpt), rank) for of, at, title, head, text, excerpt, rank in cursor.fetchall()]


def any_of(text: str) -> str:
    """Returns a query that matches any word of the text. Passages that contain more of the words rank higher."""
    return " or ".join(f'"{word}"' for word in list(dict.fromkeys(words(text)))[:MOST_WORDS])


def _marked(text: str) -> SafeString:
    return mark_safe(escape(text).replace(BEGIN, "<mark>").replace(END, "</mark>"))
