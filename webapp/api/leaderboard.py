"""Rankings: the rows of the leaderboard, by the one query that ranks."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["leaderboard"])
