"""The headline of finished runs: its outcome and the speedup over the best measured baseline, by which the list of runs is sorted and filtered."""

import django.db.models.functions.comparison
from django.db import migrations, models

# Computes the same values as `webapp.runs.headline.of_run` for runs that finish from now on.
KEPT = """
WITH found AS (
    SELECT r.id, r.outcome, r.workflow, best.ratio, best.low, best.confirmed, latest.status AS latest,
        CAST(r.speedup ->> 'ratio' AS double precision) AS told, CAST(r.speedup ->> 'low' AS double precision) AS told_low
    FROM runs_run r
    LEFT JOIN LATERAL (
        SELECT
            CASE WHEN v.alone THEN v.speedup ELSE v.best_baseline_speedup END AS ratio,
            CASE WHEN v.alone THEN v.speedup_low WHEN v.best_baseline_low IS NOT NULL THEN v.best_baseline_low
                WHEN v.speedup_high IS NOT NULL THEN v.best_baseline_speedup * v.speedup_low / nullif(v.speedup, 0) END AS low,
            v.tier = 'full' AND (NOT v.alone OR v.baselines > 1) AS confirmed
        FROM (
            SELECT *, best_baseline IN ('', 'eager') OR best_baseline_speedup IS NULL AS alone
            FROM runs_verification
            WHERE run_id = r.id AND kind = 'verify' AND status = 'passed' AND candidate_number = r.best_candidate
            ORDER BY tier, queued_at DESC
            LIMIT 1
        ) v
        WHERE v.speedup IS NOT NULL
    ) best ON true
    LEFT JOIN LATERAL (
        SELECT status FROM runs_verification WHERE run_id = r.id AND kind = 'verify' AND status <> '' ORDER BY queued_at DESC LIMIT 1
    ) latest ON true
    WHERE r.state = 'finished'
)
UPDATE runs_run SET
    gain = CASE
        WHEN found.ratio IS NOT NULL THEN found.ratio
        WHEN told_apart.headline IN ('promising', 'none') THEN found.told
    END,
    headline = told_apart.headline
FROM found, LATERAL (
    SELECT CASE
        WHEN found.ratio IS NOT NULL THEN CASE WHEN found.low > 1 THEN CASE WHEN found.confirmed THEN 'faster' ELSE 'promising' END ELSE 'none' END
        WHEN found.outcome = 'inconclusive' THEN 'noisy'
        WHEN found.outcome = 'cancelled' THEN 'cancelled'
        WHEN found.outcome = 'out_of_budget' AND found.latest = 'inconclusive' THEN 'noisy'
        WHEN found.outcome = 'out_of_budget' AND found.latest = 'infrastructure_error' THEN 'unmeasured'
        WHEN found.workflow = 'verify' AND found.latest <> 'passed' THEN
            CASE found.latest WHEN 'inconclusive' THEN 'noisy' WHEN 'infrastructure_error' THEN 'unmeasured' ELSE 'wrong' END
        WHEN found.told_low > 1 THEN 'promising'
        ELSE 'none'
    END AS headline
) told_apart
WHERE runs_run.id = found.id
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0012_longer_strategies")]

    operations = [
        migrations.AddField(model_name="run", name="headline", field=models.CharField(blank=True, db_default="", default="", max_length=12)),
        migrations.AddField(model_name="run", name="gain", field=models.FloatField(null=True)),
        migrations.RunSQL(KEPT, migrations.RunSQL.noop),
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),  # an index cannot be built over rows with pending triggers
        migrations.RemoveIndex(model_name="run", name="run_by_speedup"),
        migrations.RemoveIndex(model_name="run", name="run_census"),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                models.F("team"),
                django.db.models.functions.comparison.Coalesce(models.F("gain"), models.Value(0.0)),
                models.F("id"),
                name="run_by_gain",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                fields=["team"], name="run_census",
                include=("archived_at", "state", "headline", "outcome", "workflow", "device_kind", "precision", "created_by"),
            ),
        ),
    ]  # fmt: skip
