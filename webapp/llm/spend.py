"""Sums up teams' spending on language models by month and profile."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models import Count, Q, Sum
from django.db.models.functions import TruncMonth
from django.utils import timezone

from webapp.llm.models import ModelCall

MONTHS = 12


def spend_of(teams: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns one row per month, team and profile for the last MONTHS months, most recent first. `teams` holds teams or their ids, or is a queryset
    of either."""
    since = (timezone.now() - timedelta(days=31 * MONTHS)).replace(day=1)
    rows = (
        ModelCall.objects.filter(team__in=teams, at__gte=since)
        .annotate(month=TruncMonth("at"))
        .values("month", "team__name", "profile")
        .annotate(
            exchanges=Count("pk", filter=Q(failed=False)), failures=Count("pk", filter=Q(failed=True)), runs=Count("run", distinct=True),
            input=Sum("input_tokens"), output=Sum("output_tokens"), counted=Sum("tokens"), cost=Sum("dollars"),
            unpriced=Count("pk", filter=Q(dollars=None, failed=False)), seconds=Sum("seconds"),
        )
        .order_by("-month", "team__name", "profile")
    )  # fmt: skip
    return [dict(row) for row in rows]
