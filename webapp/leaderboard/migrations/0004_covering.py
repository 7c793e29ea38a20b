"""Index-only rankings, and a lock per group: concurrent results of one group take turns selecting the run that counts."""

from django.db import migrations, models

COVERING = {
    "fields": ["setup", "entry", "team"],
    "include": [
        "subject", "id", "confirmed", "flagged", "program_class", "eager", "eager_low", "eager_high", "best", "best_low", "best_high", "compile",
        "autotune", "graph", "dollars", "tokens", "seconds", "faster_after", "team_runs", "public_runs",
    ],
}  # fmt: skip

# Each statement in the function sees what had been committed when the statement began, so the selection sees the rows of the previous lock holder.
# Without the lock, neither of two concurrent transactions would see the other's row, and both rows would count.
TAKE_TURNS = """
CREATE OR REPLACE FUNCTION leaderboard_follow_result() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    v_row leaderboard_result := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    PERFORM pg_advisory_xact_lock(
        hashtextextended('leaderboard ' || v_row.setup_id || ' ' || v_row.entry_id || ' ' || v_row.subject_id || ' ' || v_row.team_id, 0));
    PERFORM leaderboard_count(v_row.setup_id, v_row.entry_id, v_row.subject_id, v_row.team_id);
    RETURN NULL;
END
$$;
"""
AT_ONCE = """
CREATE OR REPLACE FUNCTION leaderboard_follow_result() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    v_row leaderboard_result := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    PERFORM leaderboard_count(v_row.setup_id, v_row.entry_id, v_row.subject_id, v_row.team_id);
    RETURN NULL;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("leaderboard", "0003_counting")]

    operations = [
        migrations.RunSQL(TAKE_TURNS, AT_ONCE),
        migrations.RemoveIndex(model_name="result", name="board_team_counts"),
        migrations.RemoveIndex(model_name="result", name="board_public_counts"),
        migrations.AddIndex(
            model_name="result",
            index=models.Index(**COVERING, name="board_team_counts", condition=models.Q(team_runs__isnull=False)),
        ),
        migrations.AddIndex(
            model_name="result",
            index=models.Index(**COVERING, name="board_public_counts", condition=models.Q(public_runs__isnull=False)),
        ),
        migrations.RemoveIndex(model_name="result", name="board_newest"),
        migrations.AddIndex(model_name="result", index=models.Index(fields=["-finished_at", "-id"], name="board_newest")),
        migrations.AddIndex(
            model_name="result",
            index=models.Index(fields=["visibility", "team", "setup", "entry", "confirmed", "verdict", "program_class", "maker"], name="board_seen"),
        ),
    ]
