"""Results from an earlier clock of the verifier are labelled, and are never ranked with current ones."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection
from django.urls import reverse

from tests.unit.webapp.ranked import make_ranked
from verifier.report import CLOCK
from webapp.leaderboard.filters import Filters
from webapp.leaderboard.models import Provenance, Result, Setup
from webapp.leaderboard.ranking import board
from webapp.runs.models import Verification


def ranked(user, **filters) -> list[float]:
    return [round(row.eager.ratio, 3) for row in board(user, Filters(**filters)).entries]


def test_only_rows_of_the_current_clock_are_ranked_and_earlier_ones_among_themselves(people):
    make_ranked(people.alice, "softmax", 2.0)
    make_ranked(people.alice, "softmax", 9.0, clock=1, workflow="forge")
    make_ranked(people.alice, "softmax", 1.2, clock=1)
    assert ranked(people.alice) == [2.0], "neither as an entry of its own nor in the median of the entry's runs"
    assert ranked(people.alice, clock="1") == [9.0, 1.2]
    assert board(people.alice, Filters()).options.clocks == [("1", 2)]


def test_the_page_says_how_many_there_are_and_leads_to_them(people):
    make_ranked(people.alice, "softmax", 9.0, clock=1)
    client = people.client("alice")
    page = client.get(reverse("leaderboard:table")).content.decode()
    assert "1 result by an earlier clock is not ranked here" in page and "?clock=1" in page and "9.00" not in page
    earlier = client.get(reverse("leaderboard:table") + "?clock=1").content.decode()
    assert "9.00" in earlier and "version 1 of the verifier" in earlier
    assert "not ranked here" in client.get(reverse("leaderboard:table") + f"?clock={CLOCK}").content.decode(), "as without the parameter"


def test_without_earlier_results_nothing_is_said_of_clocks(people):
    make_ranked(people.alice, "softmax", 2.0)
    assert "earlier clock is" not in people.client("alice").get(reverse("leaderboard:table")).content.decode()


def test_lists_and_exports_name_the_clock(people):
    make_ranked(people.alice, "softmax", 9.0, clock=1)
    make_ranked(people.alice, "gelu", 2.0)
    client = people.client("alice")
    listed = client.get(reverse("leaderboard:results")).content.decode()
    assert listed.partition("<tbody>")[2].partition("</tbody>")[0].count("ranked separately") == 1, "the flag's explanation, on one row of two"
    rows = {row["task"]: row for row in json.loads(client.get(reverse("leaderboard:json")).getvalue())["results"]}
    assert (rows["softmax"]["clock"], rows["gelu"]["clock"]) == (1, CLOCK) and "earlier clock" in rows["softmax"]["flags"]
    only = json.loads(client.get(reverse("leaderboard:json") + "?clock=1").getvalue())["results"]
    assert [row["task"] for row in only] == ["softmax"]
    assert client.get(reverse("leaderboard:entries_json")).json()["selection"]["clock"] == CLOCK
    assert client.get("/api/v1/leaderboard?clock=1").json()["selection"]["clock"] == 1


def test_a_run_without_a_result_counts_where_its_programs_were_tried(people):
    make_ranked(people.alice, "softmax", None)
    assert Setup.objects.get().clock == CLOCK


@pytest.fixture
def as_before(people):
    """Leaves one result per clock, as in a database from before clocks had versions: one setup, no flag."""
    for ratio, clock in ((9.0, 1), (3.0, CLOCK), (2.0, CLOCK)):
        make_ranked(people.alice, "softmax", ratio, clock=clock)
    one = Setup.objects.get(clock=CLOCK)
    Result.objects.update(setup=one)
    Setup.objects.filter(clock=1).delete()
    Setup.objects.update(clock=1)
    Verification.objects.update(clock=None, flags=[])
    Provenance.objects.update(flags=[])
    return people


def test_an_upgrade_reads_each_report_and_parts_the_rows(as_before):
    with connection.schema_editor() as editor:
        import_module("webapp.runs.migrations.0006_clock").read(apps, editor)
    found = Verification.objects.order_by("speedup").values_list("speedup", "clock", "flags")
    assert list(found) == [(2.0, CLOCK, []), (3.0, CLOCK, []), (9.0, 1, ["earlier clock"])]
    with connection.schema_editor() as editor:
        move = import_module("webapp.leaderboard.migrations.0005_clock")
        move.part(apps, editor)
        move.label(apps, editor)
    assert ranked(as_before.alice) == [2.0], "the slower of the two in the middle, without the earlier one"
    assert ranked(as_before.alice, clock="1") == [9.0]
    assert Provenance.objects.get(result__eager=9.0).flags == ["earlier clock"]
