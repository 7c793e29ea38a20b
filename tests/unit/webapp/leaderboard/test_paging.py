"""Paging through single results by cursor."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.urls import reverse

from tests.unit.webapp.ranked import make_ranked
from webapp.leaderboard.models import Provenance, Result
from webapp.runs.models import Run

RESULTS = reverse("leaderboard:results")
COUNT = 120


@pytest.fixture
def many(people) -> list[str]:
    """Creates runs, newest first; pairs of them have the same time, so pages must break ties."""
    template = make_ranked(people.alice, "a", 2.0)
    result = template.result
    runs = [Run(team=template.team, task=template.task, title=f"run {n}", state="finished", created_by=people.alice) for n in range(COUNT)]
    Run.objects.bulk_create(runs)
    same = {name: getattr(result, name) for name in ("team", "maker", "task", "subject", "entry", "setup", "confirmed", "candidate", "eager_low")}
    rows = [Result(run=run, finished_at=result.finished_at - timedelta(seconds=n // 2), **same) for n, run in enumerate(runs)]
    Result.objects.bulk_create(rows)
    Provenance.objects.bulk_create(Provenance(result=row, outcome="improved") for row in rows)
    result.delete()
    return [row.run.title for row in sorted(rows, key=lambda row: (row.finished_at, row.pk), reverse=True)]


def titles(page: str) -> list[str]:
    return re.findall(r'class="cell-title"[^>]*>(run \d+)<', page)


def beside(page: str, rel: str) -> str | None:
    found = re.search(rf'rel="{rel}" href="([^"]+)"', page)
    return RESULTS + unescape(found[1]) if found else None


def ask(client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.slow
def test_every_result_once_there_and_back(people, many):
    client, pages, address = people.client("alice"), [], RESULTS
    while address:
        page = ask(client, address)
        assert "120 results" in page
        pages.append(titles(page))
        address = beside(page, "next")
    assert [title for page in pages for title in page] == many and [len(page) for page in pages] == [50, 50, 20]
    back = [titles(page)]
    while address := beside(page, "prev"):
        page = ask(client, address)
        back.append(titles(page))
    assert back[::-1] == pages


def test_the_oldest_are_reached_at_once(people, many):
    page = ask(people.client("alice"), f"{RESULTS}?end=1")
    assert titles(page) == many[-50:] and beside(page, "next") is None
    assert titles(ask(people.client("alice"), beside(page, "prev"))) == many[-100:-50]


def test_a_page_that_points_a_run_out_begins_with_it(people, many):
    client = people.client("alice")
    run = Run.objects.get(title=many[70])
    page = ask(client, f"{RESULTS}?run={run.pk}")
    assert titles(page) == many[70:] and 'id="highlighted"' in page
    assert titles(ask(client, beside(page, "prev"))) == many[20:70]
    first = ask(client, f"{RESULTS}?run={Run.objects.get(title=many[0]).pk}")
    assert titles(first) == many[:50] and beside(first, "prev") is None


def test_of_one_task_a_cursor_is_how_many_stand_before(people, many):
    client = people.client("alice")
    sha = Result.objects.first().subject.sha
    seen, address = [], f"{RESULTS}?task={sha}"
    while address:
        page = ask(client, address)
        seen += titles(page)
        address = beside(page, "next")
    assert len(seen) == len(set(seen)) == COUNT
    assert titles(ask(client, f"{RESULTS}?task={sha}&end=1")) == seen[100:]
    assert titles(ask(client, beside(page, "prev"))) == seen[50:100]


def test_a_cursor_that_nobody_wrote_is_the_beginning(people, many):
    client = people.client("alice")
    for cursor in ("x", "1-", "99999999999999999-1", "٣-٣"):
        assert titles(ask(client, f"{RESULTS}?after={cursor}")) == many[:50], cursor
