"""Who may follow a run: asked in one statement for everybody who has it open."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from webapp.runs.live.hub import hub

ALLOWED = """
SELECT asked.number
FROM unnest(%(users)s::bigint[], %(shares)s::uuid[], %(sessions)s::text[]) WITH ORDINALITY AS asked ("user", share, session, number),
     runs_run r
WHERE r.id = %(run)s
  AND (EXISTS (SELECT FROM accounts_user u WHERE u.id = asked."user" AND u.is_active)
         AND (r.published OR EXISTS (SELECT FROM accounts_membership m WHERE m.team_id = r.team_id AND m.user_id = asked."user"))
       OR EXISTS (SELECT FROM review_share s WHERE s.id = asked.share AND s.run_id = r.id AND s.revoked_at IS NULL AND s.expires_at > now()))
  AND (asked.session IS NULL OR EXISTS (SELECT FROM django_session s WHERE s.session_key = asked.session AND s.expire_date > now()))
"""


class Person(NamedTuple):
    """Who is viewing a run: somebody who is signed in, or a guest with a share link (webapp/review/guests.py), and in which session."""

    user: int | None
    share: str | None
    session: str | None


async def allowed(run: str, people: Collection[Person]) -> set[Person]:
    """Those of `people` who may see the run now."""
    asked = list(people)
    users, shares, sessions = ([person[at] for person in asked] for at in range(3))
    rows = await hub().rows(ALLOWED, {"run": run, "users": users, "shares": shares, "sessions": sessions})
    return {asked[number - 1] for (number,) in rows}
