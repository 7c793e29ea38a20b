"""Detects when a new result includes a baseline that was measured to be reliably faster than a team's best program for the task."""

from __future__ import annotations

from webapp.leaderboard.models import EVERYONE, Result
from webapp.notifications.models import Overtaken
from webapp.review.standing import UNRANKED


def overtaken_by(result: Result) -> list[Overtaken]:
    """Records and returns the results that this result's fastest baseline has overtaken. Each result is reported only once.

    A team's measurement counts only against its own results, and a published measurement counts against everybody's. Only each team's best program is
    considered, because its slower programs have already been superseded.
    """
    if not result.confirmed:
        return []
    times = {name: found["baseline_ms"] for name, found in result.provenance.comparisons.items()}
    if not times:
        return []
    baseline = min(times, key=lambda name: times[name])
    found = []
    for best in best_of_teams(result):
        if best.pk == result.pk or best.program_ms is None or not best.best or not best.best_low:
            continue
        # The uncertainty of the program's time is derived from the interval of its speedup over its own baseline.
        if best.program_ms * (best.best_low / best.best) <= times[baseline]:
            continue
        row, made = Overtaken.objects.get_or_create(
            run=best.run,
            defaults={"by": result.run, "baseline": baseline, "baseline_ms": times[baseline], "program_ms": best.program_ms},
        )
        found += [row] if made else []
    return found


def best_of_teams(result: Result) -> list[Result]:
    """Returns each team's fastest program for the result's task under the same setup, among those that had beaten every baseline."""
    rows = Result.objects.filter(subject=result.subject_id, setup=result.setup_id, confirmed=True, program_ms__isnull=False)
    rows = rows.exclude(verdict__in=UNRANKED)
    if result.visibility != EVERYONE:
        rows = rows.filter(team=result.team_id)
    fastest = rows.order_by("team", "program_ms", "pk").distinct("team").select_related("run__team")
    return [row for row in fastest if (row.best_low or 0.0) > 1 or row.pk == result.pk]
