"""The list of runs: ticked rows, tags, saved filters, and runs that need attention."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from tests.unit.webapp.cast import make_run
from tests.unit.webapp.people import make_result
from webapp.accounts.models import AuditEntry
from webapp.llm.models import Letter
from webapp.runs.models import Run, SavedFilter, Tag
from webapp.runs.pages.attention import asking

LIST, TICKED, FILTERS = reverse("runs:list"), reverse("runs:ticked"), reverse("runs:save_filter")


def titles(client, **query) -> int:
    return client.get(LIST, query).content.decode().count('name="with"')


def test_ticked_runs_are_tagged_found_by_it_and_untagged(people):
    runs = [make_result(people.alice), make_run(people.alice), make_run(people.alice)]
    client = people.client("bob")
    named = {"with": [str(run.pk) for run in runs[:2]]}
    for _ in range(2):  # ticking a run twice counts once
        client.post(TICKED, named | {"action": "tag", "tag": "  for  the paper "})
    assert set(Tag.objects.values_list("name", flat=True)) == {"for the paper"} and Tag.objects.count() == 2
    assert titles(client, tag="for the paper") == 2 and titles(client, tag="no such") == 0 and titles(client) == 3
    assert 'tag=for%20the%20paper"' in client.get(LIST).content.decode() or "tag=for+the+paper" in client.get(LIST).content.decode()
    client.post(TICKED, named | {"action": "untag", "tag": "for the paper"})
    assert not Tag.objects.exists()


def test_what_has_ended_is_archived_together_and_on_record(people):
    done, going = make_result(people.alice), make_run(people.alice, state="running")
    client = people.client("alice")
    answer = client.post(TICKED, {"with": [str(done.pk), str(going.pk)], "action": "archive"}, follow=True).content.decode()
    assert "Archived 1 run." in answer and "1 run not finished yet" in answer
    assert Run.objects.get(pk=done.pk).archived_at and not Run.objects.get(pk=going.pk).archived_at
    assert AuditEntry.objects.filter(action="run.archived").count() == 1
    client.post(TICKED, {"with": [str(done.pk)], "action": "restore"})
    assert not Run.objects.get(pk=done.pk).archived_at


def test_runs_of_others_are_not_touched(people):
    run = make_result(people.alice)
    stranger = people.client("charlie")
    for action in ("archive", "tag"):
        answer = stranger.post(TICKED, {"with": [str(run.pk)], "action": action, "tag": "mine"}, follow=True)
        assert "Tick at least one run first" in answer.content.decode()
    assert not Tag.objects.exists() and not Run.objects.get(pk=run.pk).archived_at
    assert people.client("alice").post(TICKED, {"with": ["x"], "action": "archive"}).status_code == 400
    assert people.client("alice").post(TICKED, {"with": [str(run.pk)], "action": "burn"}).status_code == 400


def test_ticked_runs_are_compared(people):
    runs = [make_result(people.alice), make_result(people.alice)]
    answer = people.client("alice").post(TICKED, {"with": [str(run.pk) for run in runs], "action": "compare", "tag": "", "next": "/"}, follow=True)
    assert "Compare 2 runs" in answer.content.decode() and "csrf" not in answer.redirect_chain[-1][0]


def test_a_filter_is_kept_by_name_and_forgotten(people):
    make_run(people.alice)
    client = people.client("alice")
    answer = client.post(FILTERS, {"name": "my queue", "query": "state=active&q=soft&after=abc&junk=1"})
    assert answer.headers["Location"] == f"{LIST}?q=soft&state=active"
    page = client.get(LIST, {"q": "soft", "state": "active"}).content.decode()
    assert 'aria-current="true">my queue</a>' in page and "Delete the filter my queue" in page
    assert "my queue" not in people.client("bob").get(LIST).content.decode()
    client.post(FILTERS, {"name": "my queue", "query": "state=archived"})
    assert SavedFilter.objects.get().query == "state=archived"
    client.post(FILTERS, {"name": "", "query": "state=active"})
    client.post(FILTERS, {"name": "all", "query": ""})
    assert SavedFilter.objects.count() == 1
    client.post(FILTERS, {"name": "my queue", "forget": ""})
    assert not SavedFilter.objects.exists()


def ended(run: Run, **fields) -> Run:
    Run.objects.filter(pk=run.pk).update(**{"state": "finished", "finished_at": timezone.now(), **fields})
    run.refresh_from_db()
    return run


def reasons(people, name: str = "alice") -> list[tuple[str, str]]:
    user = getattr(people, name)
    return [(one.run.title, one.reason) for one in asking(people.alice.personal_team, user)]


def test_what_waits_or_failed_asks_until_it_is_dismissed(people):
    waiting, paused, failed, old = (make_run(people.alice) for _ in range(4))
    for run, title in ((waiting, "waits"), (paused, "paused"), (failed, "failed"), (old, "old")):
        Run.objects.filter(pk=run.pk).update(title=title, state="running")
    Letter.objects.create(name="l", team=waiting.team, run=waiting, profile="p", waiting={"request": {"purpose": "coder", "messages": []}})
    Run.objects.filter(pk=paused.pk).update(state="paused")
    ended(failed, outcome="failed", reason="nothing passed")
    ended(old, outcome="failed", finished_at=timezone.now() - timedelta(days=30))
    assert sorted(reasons(people)) == [("failed", "failed"), ("paused", "reply"), ("waits", "reply")]
    client = people.client("alice")
    page = client.get(LIST).content.decode()
    assert "Needs attention" in page and "Nothing passed" in page and f"/runs/{waiting.pk}/reply" in page
    assert "Needs attention" not in client.get(LIST, {"q": "waits"}).content.decode()
    client.post(reverse("runs:dismiss", args=[failed.pk]), {"reason": "failed"})
    assert ("failed", "failed") not in reasons(people) and ("failed", "failed") in reasons(people, "bob")
    assert client.post(reverse("runs:dismiss", args=[failed.pk]), {"reason": "boredom"}).status_code == 400
    assert people.client("charlie").post(reverse("runs:dismiss", args=[failed.pk]), {"reason": "failed"}).status_code == 404


@pytest.mark.parametrize(("low", "asks"), [(2.2, True), (2.0, False)])
def test_a_result_is_overtaken_where_a_later_interval_lies_above_its_own(people, low, asks):
    first, second = make_run(people.alice), make_run(people.alice)
    Run.objects.filter(pk=first.pk).update(title="first")
    ended(first, outcome="improved", speedup={"ratio": 2.0, "low": 1.9, "high": 2.1}, finished_at=timezone.now() - timedelta(hours=2))
    ended(second, outcome="improved", speedup={"ratio": 2.3, "low": low, "high": 2.6})
    assert reasons(people) == ([("first", "overtaken")] if asks else [])
    Run.objects.filter(pk=second.pk).update(device_kind="cuda")
    assert reasons(people) == []
