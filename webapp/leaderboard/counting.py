"""Selects the run that counts towards the ranking.

Among a team's runs of the same entry on the same task under the same setup, the run with the median speedup over eager counts. A run without a
confirmed result ranks as the slowest. If the number of runs is even, the slower of the two middle runs is taken. As a result, neither a lucky run nor
repeated attempts can improve an entry.

The selection is made twice: over all runs that the team's members can see, and over the runs that the team has published. Postgres keeps both
selections up to date.
"""

from __future__ import annotations

from django.db import connection

from webapp.sql import statements

# `{where}` is either empty or restricts the statement to one group (ONE_GROUP). The triggers of migration 0003 watch all four columns of `Result`
# that affect a group's selection.
COUNT = statements(__file__)["count"]
ONE_GROUP = "WHERE setup_id = p_setup AND entry_id = p_entry AND subject_id = p_subject AND team_id = p_team"


def count_all() -> int:
    """Redo the selection for every group and return the number of rows that changed."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT.format(where=""))
        return int(cursor.rowcount)
