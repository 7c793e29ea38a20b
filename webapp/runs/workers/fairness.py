"""Chooses the next job: turns go round between teams, then people, then runs, so that one person's hundred runs keep nobody else's waiting.

The queue hands out jobs by a function in Postgres; this one takes the place of procrastinate's own, which goes by age alone. Of the jobs that may
begin, the team with the fewest at work is next, of several the one whose turn was longest ago; then in the same way the person, then the run, then
the oldest job. What belongs to no run (mail, a try-out on a page) takes turns as if it were a team. Priorities and locks hold as before.
"""

from webapp.sql import statements

FETCH = statements(__file__)["fetch"]

# Turns of long ago decide nothing any more.
FORGET = "DELETE FROM runs_turn WHERE at < now() - interval '1 day'"
