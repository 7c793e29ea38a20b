"""Whether a team's runs may be learned from: what an owner of it said last, in the audit log."""

from __future__ import annotations

from webapp.accounts.models import AuditEntry, Team

AGREED, WITHDRAWN = "training.agreed", "training.withdrawn"


def last_word(team: Team) -> AuditEntry | None:
    return AuditEntry.objects.filter(team=team, action__in=[AGREED, WITHDRAWN]).order_by("-at", "-id").first()


def agreeing() -> list[tuple[Team, AuditEntry]]:
    """Teams whose last word is yes, with that word."""
    teams = Team.objects.filter(audit__action=AGREED).distinct().order_by("slug")
    return [(team, word) for team in teams if (word := last_word(team)) is not None and word.action == AGREED]
