"""When a baseline overtakes: a new result measured a baseline that is surely faster than what had been a team's best program of the task."""

from __future__ import annotations

from webapp.leaderboard.models import EVERYONE, Result
from webapp.notifications.models import Overtaken
from webapp.review.standing import UNRANKED


def overtaken_by(result: Result) -> list[Overtaken]:
    """Results that the fastest baseline of this one has overtaken, each of which is written, and returned, once.

    A team's measurement counts for its own results, and a published one for everybody's. Only the best program of a team is judged: what is slower
    was left behind before.
    """
    if not result.confirmed:
        return []
    times = {name: found["baseline_ms"] for name, found in result.provenance.comparisons.items()}
    if not times:
        return []
    baseline = min(times, key=lambda name: times[name])
    found = []
    for best in best_of_teams(result):
        # The program's own interval over its baseline says how far its time may be off.
        surely = best.program_ms * (best.best_low / best.best) > times[baseline] if best.best and best.best_low else False
        if best.pk == result.pk or not surely:
            continue
        row, made = Overtaken.objects.get_or_create(
            run=best.run,
            defaults={"by": result.run, "baseline": baseline, "baseline_ms": times[baseline], "program_ms": best.program_ms},
        )
        found += [row] if made else []
    return found


def best_of_teams(result: Result) -> list[Result]:
    """The fastest program of each team on the result's task under its setup that had beaten every baseline."""
    rows = Result.objects.filter(subject=result.subject_id, setup=result.setup_id, confirmed=True, program_ms__isnull=False)
    rows = rows.exclude(verdict__in=UNRANKED)
    if result.visibility != EVERYONE:
        rows = rows.filter(team=result.team_id)
    fastest = rows.order_by("team", "program_ms", "pk").distinct("team").select_related("run__team")
    return [row for row in fastest if (row.best_low or 0.0) > 1 or row.pk == result.pk]
