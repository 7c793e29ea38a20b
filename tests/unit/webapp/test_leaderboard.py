"""The leaderboard: what is eligible, how it is ranked, who sees it, and its exports."""

from __future__ import annotations

import csv
from io import StringIO

import pytest
from django.http import QueryDict
from django.urls import reverse

from tests.unit.webapp.cast import make_run
from tests.unit.webapp.people import add_verification, make_result
from webapp.leaderboard.results import Filters, ranked
from webapp.leaderboard.views import harmless
from webapp.runs import projection
from webapp.runs.models import Verification
from webapp.ui.tags import FLAGS

TABLE = reverse("leaderboard:table")


def rows(user, query: str = "") -> list:
    return [row for group in ranked(user, Filters.read(QueryDict(query))) for row in group.rows]


def test_an_empty_board_says_how_results_get_there(people):
    assert "No verified results yet" in people.client("alice").get(TABLE).content.decode()


def test_a_result_is_its_teams_until_it_is_published(people):
    run = make_result(people.alice)
    assert len(rows(people.alice)) == len(rows(people.bob)) == 1
    assert rows(people.charlie) == []
    people.client("alice").post(reverse("runs:publish", args=[run.pk]))
    assert [(row.ours, row.can_write) for row in rows(people.charlie)] == [(False, False)]
    people.client("alice").post(reverse("runs:publish", args=[run.pk]), {"withdraw": ""})
    assert rows(people.charlie) == []


def test_only_passed_full_verifications_count(people):
    for tier, status in (("quick", "passed"), ("full", "wrong_result"), ("full", "inconclusive")):
        add_verification(make_run(people.alice, state="finished", best_candidate=2), tier=tier, status=status)
    assert rows(people.alice) == []


def test_a_run_has_one_row_that_of_its_best_candidate(people):
    run = make_result(people.alice, ratio=2.0)
    add_verification(run, ratio=9.0, number=1)
    assert [(row.candidate, row.speedup["ratio"]) for row in rows(people.alice)] == [(2, 2.0)]


def test_ranks_go_by_the_lower_bound_within_one_device(people):
    make_result(people.alice, ratio=3.0, speedup_low=1.1)
    make_result(people.alice, ratio=2.0, speedup_low=1.9)
    make_result(people.alice, ratio=1.5, device="cuda")
    groups = ranked(people.alice, Filters())
    assert [(group.device_kind, [(row.rank, row.speedup["ratio"]) for row in group.rows]) for group in groups] == [
        ("cpu", [(1, 2.0), (2, 3.0)]),
        ("cuda", [(1, 1.5)]),
    ]


def test_precisions_are_never_ranked_together(people):
    make_result(people.alice)
    make_result(people.alice, precision="bf16")
    assert [len(group.rows) for group in ranked(people.alice, Filters())] == [1, 1]


def test_flagged_tasks_are_shown_without_a_rank(people):
    make_result(people.alice, ratio=9.0, flags=["trivial"])
    make_result(people.alice, ratio=2.0)
    assert [(row.rank, row.speedup["ratio"]) for row in rows(people.alice)] == [(None, 9.0), (1, 2.0)]


def test_filters(people):
    make_result(people.alice, device="cuda", published=True)
    make_result(people.alice, program_class="orchestration", workflow="verify")
    for query, count in {
        "device=h200": 1, "device=none": 0, "class=custom": 1, "class=custom%2Bmixed": 1, "class=orchestration": 1, "workflow=verify": 1,
        "precision=fp32-strict": 2, "q=soft": 2, "q=other": 0, "whose=ours": 2, "whose=published": 1,
    }.items():  # fmt: skip
        assert len(rows(people.alice, query)) == count, query
    assert people.client("alice").get(TABLE + "?task=not-an-id").status_code == 200
    assert "No verified result matches" in people.client("alice").get(TABLE + "?q=other").content.decode()


def test_a_row_says_everything_that_the_figure_depends_on(people):
    run = make_result(people.alice, device="cuda", flags=["bounded"])
    page = people.client("alice").get(TABLE).content.decode()
    for text in ("<b>2.00×</b>", "[1.90, 2.10]", "1.60×", "compile", "1.5 ms", "custom 90 %", "bounded", "H200", "fp32-strict", "stitch"):
        assert text in page, text
    assert reverse("runs:candidate", args=[run.pk, 2]) in page


def test_exports_hold_what_the_page_shows(people):
    make_result(people.alice, published=True)
    make_result(people.charlie)
    client = people.client("alice")
    found = client.get(reverse("leaderboard:json")).json()["results"]
    assert [(row["speedup_vs_eager"], row["speedup_low"], row["device_name"], row["rank"]) for row in found] == [(2.0, 1.9, "Example CPU", 1)]
    table = list(csv.DictReader(StringIO(client.get(reverse("leaderboard:csv")).content.decode())))
    assert [(row["speedup_vs_eager"], row["program_ms"], row["best_baseline"]) for row in table] == [("2.0", "1.5", "compile")]
    assert client.get(reverse("leaderboard:json") + "?q=other").json()["results"] == []


def test_a_spreadsheet_never_takes_a_title_for_a_formula():
    assert [harmless(value) for value in ("=cmd()", "softmax", -1.5)] == ["'=cmd()", "softmax", -1.5]


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({}, []),
        ({"flags": ["trivial"]}, ["trivial"]),
        ({"timing": {"program_ms": 0.4, "bounded": True, "comparisons": []}}, ["bounded"]),
        ({"weights": "seeded"}, ["seeded"]),
        ({"findings": [{"severity": "note"}, {"severity": "downgrade"}]}, ["findings"]),
        ({"protection": {"sandbox": "process", "layers": ["rlimits"]}}, ["no sandbox"]),
    ],
)
def test_what_a_reader_of_the_bare_figure_has_to_know_is_a_flag_of_the_row(change, flag):
    row = Verification()
    projection._take_report(row, {"status": "passed", "tier": "full", "protection": {"sandbox": "bubblewrap", "layers": []}} | change)
    assert row.flags == flag
    assert set(flag) <= set(FLAGS)
