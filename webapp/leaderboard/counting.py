"""Which run counts. Of a team's runs of one entry on one task under one setup it is the median by its speedup against eager, a run without a
confirmed result being the slowest; of an even number the slower of the two in the middle. So neither luck nor another try makes an entry better.

It is counted twice: over all runs that the team's members see, and over those that the team has published. Postgres keeps both up to date.
"""

from __future__ import annotations

from django.db import connection

# All four columns of `Result` that decide over a group are in the triggers of migration 0003.
COUNT = """
UPDATE leaderboard_result r SET team_runs = c.team_runs, public_runs = c.public_runs
FROM (
    SELECT id, CASE WHEN inside AND inside_nth = (inside_n + 1) / 2 THEN inside_n END AS team_runs,
        CASE WHEN outside AND outside_nth = (outside_n + 1) / 2 THEN outside_n END AS public_runs
    FROM (
        SELECT id, inside, outside, row_number() OVER insiders AS inside_nth, count(*) FILTER (WHERE inside) OVER together AS inside_n,
            row_number() OVER outsiders AS outside_nth, count(*) FILTER (WHERE outside) OVER together AS outside_n
        FROM (
            SELECT id, setup_id, entry_id, subject_id, team_id, CASE WHEN confirmed THEN eager ELSE 0 END AS score,
                visibility <> 'private' AND verdict NOT IN ('questioned', 'hack', 'retracted') AS inside,
                visibility = 'everyone' AND verdict NOT IN ('questioned', 'hack', 'retracted') AS outside
            FROM leaderboard_result {where}
        ) judged
        WINDOW together AS (PARTITION BY setup_id, entry_id, subject_id, team_id),
            insiders AS (PARTITION BY setup_id, entry_id, subject_id, team_id, inside ORDER BY score, id),
            outsiders AS (PARTITION BY setup_id, entry_id, subject_id, team_id, outside ORDER BY score, id)
    ) placed
) c
WHERE r.id = c.id AND (r.team_runs IS DISTINCT FROM c.team_runs OR r.public_runs IS DISTINCT FROM c.public_runs)
"""
ONE_GROUP = "WHERE setup_id = p_setup AND entry_id = p_entry AND subject_id = p_subject AND team_id = p_team"


def count_all() -> int:
    """Decide over every group anew; returns how many rows changed."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT.format(where=""))
        return cursor.rowcount
