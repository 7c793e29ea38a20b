"""Verdicts: who may give which, which one applies, and how they remove results from rankings."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied

from agents.events import NewEvent
from tests.unit.webapp.cast import PROGRAM, make_run, make_user
from tests.unit.webapp.people import make_result
from webapp.accounts.models import AuditEntry, Membership
from webapp.review import services, verdicts
from webapp.review.models import Notification, Verdict
from webapp.review.standing import latest
from webapp.runs import artefacts
from webapp.runs.models import Candidate
from webapp.runs.trace.append import append
from webapp.runs.trace.projection import rebuild


@pytest.fixture
def run(people):
    return make_result(people.alice)


def judge(client, run, value: str, reason: str = "", **headers):
    return client.post(f"/runs/{run.pk}/candidates/2/verdict", {"value": value, "reason": reason}, headers=headers)


def column(run) -> str:
    return Candidate.objects.get(run=run, number=2).verdict


def test_a_verdict_stands_until_the_next_and_all_are_kept(people, run):
    bob = people.client("bob")
    assert judge(bob, run, "questioned", "It reads only the first row.").status_code == 302
    assert column(run) == "questioned"
    judge(people.client("alice"), run, "accepted")
    assert services.standing(Candidate.objects.get(run=run, number=2)).by == people.alice
    judge(bob, run, "withdrawn")
    assert column(run) == "" and latest(run.pk, 2) is None
    assert list(Verdict.objects.filter(run=run).order_by("pk").values_list("value", flat=True)) == ["questioned", "accepted", "withdrawn"]
    assert AuditEntry.objects.filter(team=run.team, action="verdict.given").count() == 3


@pytest.mark.parametrize("value", ["questioned", "hack", "retracted"])
def test_what_leaves_the_ranking_needs_a_reason(people, run, value):
    answer = judge(people.client("alice"), run, value, " ", **{"HX-Request": "true"})
    assert "Say why" in answer.content.decode() and column(run) == ""


def test_a_refused_verdict_keeps_what_was_typed(people, run):
    page = judge(people.client("bob"), run, "withdrawn", "long words", **{"HX-Request": "true"}).content.decode()
    assert "has no verdict" in page and "long words" in page


def test_only_owners_and_whoever_started_the_run_retract(people, run):
    with pytest.raises(PermissionDenied):
        verdicts.give(people.bob, run, 2, "retracted", "mine")
    verdicts.give(people.alice, run, 2, "retracted", "The input was never read.")
    with pytest.raises(PermissionDenied):
        verdicts.give(people.bob, run, 2, "accepted")
    run.created_by = people.bob
    run.save()
    verdicts.give(people.bob, run, 2, "withdrawn")
    assert column(run) == ""


def test_viewers_and_strangers_judge_nothing(people, run):
    Membership.objects.filter(user=people.bob).update(role=Membership.VIEWER)
    assert judge(people.client("bob"), run, "accepted").status_code == 403
    assert judge(people.client("charlie"), run, "accepted").status_code == 404
    run.published = True
    run.save()
    assert judge(people.client("charlie"), run, "accepted").status_code == 403


def test_who_started_the_run_and_who_judged_before_are_told(people, run):
    dora = make_user("dora")
    Membership.objects.create(team=run.team, user=dora)
    verdicts.give(people.bob, run, 2, "accepted")
    verdicts.give(dora, run, 2, "hack", "It returns the cached output.")
    told = sorted((row.user.username, row.verdict.value) for row in Notification.objects.select_related("user", "verdict"))
    assert told == [("alice", "accepted"), ("alice", "hack"), ("bob", "hack")]


def test_a_candidate_that_is_not_there(people, run):
    with pytest.raises(verdicts.VerdictRefused, match="no candidate 7"):
        verdicts.give(people.alice, run, 7, "accepted")


def test_verdicts_outlive_the_projection(db):
    ada = make_user()
    run = make_run(ada)
    program = artefacts.put(run.team_id, PROGRAM.encode(), "text/x-python", "program.py").model_dump()
    append(run.pk, [NewEvent(kind="candidate.proposed", payload={"candidate": 1, "title": "one", "sha": program["sha"], "program": program})])
    verdicts.give(ada, run, 1, "hack", "It sleeps.")
    rebuild(run.pk)
    assert Candidate.objects.get(run=run).verdict == "hack"


def test_a_published_runs_pages_say_why_and_by_whom(people, run):
    run.published = True
    run.save()
    verdicts.give(people.bob, run, 2, "questioned", "It reads only the first row.")
    page = people.client("charlie").get(f"/runs/{run.pk}/candidates/2/verdict").content.decode()
    assert "questioned" in page and "It reads only the first row." in page and "bob" in page and "verdict-form" not in page
