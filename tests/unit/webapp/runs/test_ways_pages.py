"""A run with several branches shows them side by side, with and without a script."""

from __future__ import annotations

from agents.events import NewEvent
from webapp.runs.trace.append import append


def test_the_ways_stand_side_by_side_without_a_script(run, client, user):
    def way(number, what, **more):
        return NewEvent(kind="way.changed", span="round-1", agent="engine", payload={"way": number, "what": what, "round": 1, **more})

    client.force_login(user)
    assert "Branch 1" not in client.get(f"/runs/{run.pk}/").content.decode()
    assert client.get(f"/runs/{run.pk}/ways").content.strip() == b""
    lead = {"candidate": 1, "reason": "Candidate 1 is the fastest of all branches."}
    append(run.pk, [way(1, "begun", reason="It writes the plan's program."), way(2, "begun", idea=1, reason="It tries <b>idea 1</b>.")])
    append(run.pk, [way(1, "leads", **lead), way(2, "ended", reason="It produced no program.")])
    for page in (f"/runs/{run.pk}/", f"/runs/{run.pk}/ways"):
        shown = client.get(page).content.decode()
        assert shown.index("Branch 1") < shown.index("Branch 2")
        assert "Takes the lead with candidate 1: Candidate 1 is the fastest of all branches." in shown
        assert "It tries &lt;b&gt;idea 1&lt;/b&gt;." in shown and "Ends: It produced no program." in shown and "2 so far, 1 running" in shown
