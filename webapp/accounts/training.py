"""Consent to training on a team's runs: the most recent decision by any of its owners in the audit log."""

from __future__ import annotations

from webapp.accounts.models import AuditEntry, Team

AGREED, WITHDRAWN = "training.agreed", "training.withdrawn"


def last_word(team: Team) -> AuditEntry | None:
    return AuditEntry.objects.filter(team=team, action__in=[AGREED, WITHDRAWN]).order_by("-at", "-id").first()


def agreeing() -> list[tuple[Team, AuditEntry]]:
    """Returns the teams whose most recent decision is consent, with the audit entry of that decision."""
    teams = Team.objects.filter(audit__action=AGREED).distinct().order_by("slug")
    return [(team, word) for team in teams if (word := last_word(team)) is not None and word.action == AGREED]
