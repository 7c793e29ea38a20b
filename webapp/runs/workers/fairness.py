"""Chooses the next job. Turns rotate between teams, then people, then runs, so that one person's hundred runs don't delay anybody else's.

A Postgres function hands out the queue's jobs. Ours replaces procrastinate's, which considers only the age of jobs. Among the teams with jobs that
may begin, the one with the fewest running jobs is next. Ties go to the team whose last turn was longest ago. The person and the run are chosen in the
same way, then the oldest job. A job that belongs to no run (such as mail, or a test on a page) is scheduled as if it were a team. Priorities and
locks work as in procrastinate.
"""

from webapp.sql import statements

FETCH = statements(__file__)["fetch"]

# Turns that are older than this no longer affect the choice.
FORGET = "DELETE FROM runs_turn WHERE at < now() - interval '1 day'"
