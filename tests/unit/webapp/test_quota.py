"""A person may have at most a fixed number of unfinished runs; any action that would start another one reports this and starts nothing."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from agents.settings import Settings
from tests.unit.webapp.arena.test_arena_pages import FORM
from tests.unit.webapp.cast import SOURCE, make_run
from tests.unit.webapp.test_submit_form import typed
from webapp.arena.models import Arena
from webapp.runs.forks import ForkRefused, fork_run
from webapp.runs.models import Run
from webapp.runs.services import QuotaReached, check_quota

SENTENCE = "reached the limit of 2 unfinished runs"


@pytest.fixture
def full(people, settings):
    settings.MOST_OPEN_RUNS = 2
    for state in ("queued", "paused", "finished"):
        make_run(people.alice, state=state)
    return people


def test_a_page_says_so_and_keeps_what_was_typed(full):
    answer = full.client("alice").post(reverse("tasks:submit"), typed(title="the third"))
    page = answer.content.decode()
    assert answer.status_code == 422 and SENTENCE in page and "the third" in page and Run.objects.count() == 3


def test_the_same_run_again_leads_back_with_the_sentence(full):
    run = Run.objects.get(state="finished")
    answer = full.client("alice").post(reverse("runs:rerun", args=[run.pk]), follow=True)
    assert SENTENCE in answer.content.decode() and Run.objects.count() == 3


def test_the_api_answers_429_with_a_hint(full):
    answer = full.client("alice").post("/api/v1/runs", json.dumps({"task_source": SOURCE}), content_type="application/json")
    assert answer.status_code == 429 and SENTENCE in answer.json()["detail"] and answer.json()["hint"] and Run.objects.count() == 3


def test_an_arena_begins_whole_or_not_at_all(full, settings):
    settings.MOST_OPEN_RUNS = 3
    answer = full.client("alice").post(reverse("arena:start"), FORM)
    assert answer.status_code == 422 and "reached the limit of 3 unfinished runs" in answer.content.decode()
    assert Run.objects.count() == 3 and not Arena.objects.exists()


def test_a_fork_counts_like_any_other_run(full):
    run = Run.objects.filter(state="finished").get()
    with pytest.raises(ForkRefused, match=SENTENCE):
        fork_run(run, 1, Settings(), user=full.alice)
    assert Run.objects.count() == 3


def test_a_team_has_a_limit_of_its_own(people, settings):
    settings.MOST_OPEN_RUNS_OF_TEAM = 2
    team = make_run(people.alice).team
    make_run(people.alice, state="paused")
    make_run(people.alice, state="finished")
    with pytest.raises(QuotaReached, match=f"{team.name} has reached the limit of 2 unfinished runs: wait"):
        check_quota(people.charlie, team)
    check_quota(people.charlie, make_run(people.charlie).team)


def test_somebody_elses_runs_do_not_count(full):
    assert full.client("charlie").post(reverse("tasks:submit"), typed()).status_code == 302
