"""Which run counts. Of a team's runs of one entry on one task under one setup it is the median by its speedup against eager, a run without a
confirmed result being the slowest; of an even number the slower of the two in the middle. So neither luck nor another try makes an entry better.

It is counted twice: over all runs that the team's members see, and over those that the team has published. Postgres keeps both up to date.
"""

from __future__ import annotations

from django.db import connection

from webapp.sql import statements

# `{where}` narrows it to one group (ONE_GROUP), or is empty. All four columns of `Result` that decide over a group are in the triggers of
# migration 0003.
COUNT = statements(__file__)["count"]
ONE_GROUP = "WHERE setup_id = p_setup AND entry_id = p_entry AND subject_id = p_subject AND team_id = p_team"


def count_all() -> int:
    """Decide over every group anew; returns how many rows changed."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT.format(where=""))
        return int(cursor.rowcount)
