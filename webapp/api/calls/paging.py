"""Cursor pagination, which is stable while new rows arrive and as fast for the last page as for the first."""

from __future__ import annotations

import base64
import binascii
import uuid
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from ninja import Schema
from pydantic import Field

from webapp.api.calls.problems import wrong


class Page(Schema):
    next: str | None = Field(description="Cursor of the next page, for `?cursor=`; null on the last.")


def page_of(rows: QuerySet[Any], cursor: str | None, limit: int) -> tuple[list[Any], str | None]:
    """Return `limit` rows after the cursor, newest first, and the next cursor. The rows need `created_at` and a UUID `pk`."""
    ordered = rows.order_by("-created_at", "-pk")
    if cursor:
        at, key = _read(cursor)
        ordered = ordered.filter(Q(created_at__lt=at) | Q(created_at=at, pk__lt=key))
    found = list(ordered[: limit + 1])
    return found[:limit], _cursor(found[limit - 1]) if len(found) > limit else None


def _cursor(row: Any) -> str:
    return base64.urlsafe_b64encode(f"{row.created_at.isoformat()}|{row.pk}".encode()).decode().rstrip("=")


def _read(cursor: str) -> tuple[datetime, uuid.UUID]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        at, _, key = text.partition("|")
        when = datetime.fromisoformat(at)
        if when.tzinfo is None:
            raise ValueError("a time without a zone")
        return when, uuid.UUID(key)
    except (ValueError, binascii.Error, OverflowError):
        raise wrong(
            "query.cursor", "this isn't a cursor", "Use the `next` of an earlier answer unchanged, or leave it out for the first page."
        ) from None
