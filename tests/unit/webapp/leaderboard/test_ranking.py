"""Which results count, and how: every rule of docs/reference/leaderboard.md."""

from __future__ import annotations

import math

import pytest
from django.core.management import call_command
from django.db import connection

from tests.unit.webapp.ranked import make_ranked, make_suite
from webapp.leaderboard.counting import count_all
from webapp.leaderboard.filters import Filters
from webapp.leaderboard.models import Entry, Listing, Preference, Result
from webapp.leaderboard.ranking import Board, BoardRow, board
from webapp.leaderboard.visibility import set_visibility
from webapp.review import verdicts
from webapp.runs.models import Candidate, Run
from webapp.runs.trace.projection import rebuild


def rows(found: Board) -> dict[str, BoardRow]:
    return {row.name.short: row for row in found.rows}


def test_one_run_is_an_entry_beside_the_baselines_of_its_report(people):
    make_ranked(people.alice, ratio=3.0, dollars=0.5)
    found = board(people.alice, Filters())
    assert [(row.rank, row.name.short) for row in found.rows] == [
        (1, "stitch · built-in"), (None, "eager in a CUDA graph"), (None, "torch.compile"), (None, "PyTorch eager"),
    ]  # fmt: skip
    mine, graph = found.rows[0], found.rows[1]
    assert (mine.passed, mine.tried, mine.runs, mine.costs["dollars"]) == (1, 1, 1, 0.5)
    assert mine.eager.ratio == pytest.approx(3.0) and mine.best.ratio == pytest.approx(2.0)
    assert mine.eager.low == pytest.approx(3.0 * 0.95, rel=0.02) and mine.eager.high == pytest.approx(3.0 * 1.05, rel=0.02)
    assert graph.eager.ratio == pytest.approx(1.5) and graph.best.ratio == pytest.approx(1.0)


def test_a_task_that_failed_or_was_not_tried_counts_as_one_and_is_never_fast(people):
    make_suite(people.alice, ["1_a", "2_b", "3_c", "4_d"])
    make_ranked(people.alice, "1_a", 4.0)
    make_ranked(people.alice, "2_b", 0.25)
    make_ranked(people.alice, "3_c", None)
    found = board(people.alice, Filters(suite="kernelbench-level3", p=0.5))
    row = rows(found)["stitch · built-in"]
    assert (len(found.tasks), row.passed, row.tried) == (4, 2, 3)
    assert row.eager.ratio == pytest.approx((4.0 * 0.25 * 1 * 1) ** 0.25)
    assert row.fast == 0.25, "only the task that was solved at more than half of eager's speed"
    assert rows(board(people.alice, Filters(suite="kernelbench-level3", p=0.2)))["stitch · built-in"].fast == 0.5


def test_of_several_runs_the_median_counts_and_a_failure_is_the_slowest(people):
    for ratio in (9.0, None, 2.0):
        make_ranked(people.alice, "softmax", ratio)
    assert rows(board(people.alice, Filters()))["stitch · built-in"].eager.ratio == pytest.approx(2.0)
    make_ranked(people.alice, "softmax", 8.0)
    row = rows(board(people.alice, Filters()))["stitch · built-in"]
    assert (row.eager.ratio, row.runs) == (pytest.approx(2.0), 4), "of an even number the slower of the two in the middle"


def test_classes_that_were_not_selected_are_not_solved(people):
    make_ranked(people.alice, "a", 2.0, program_class="orchestration")
    make_ranked(people.alice, "b", 2.0, program_class="mixed")
    usual = rows(board(people.alice, Filters()))["stitch · built-in"]
    assert (usual.passed, usual.other_class, usual.eager.ratio) == (1, 1, pytest.approx(math.sqrt(2)))
    assert rows(board(people.alice, Filters(program_class="custom")))["stitch · built-in"].passed == 0
    assert rows(board(people.alice, Filters(program_class="any")))["stitch · built-in"].passed == 2


def test_flagged_tasks_stand_apart(people):
    make_ranked(people.alice, "a", 2.0)
    make_ranked(people.alice, "b", 50.0, flags=["trivial"])
    found = board(people.alice, Filters())
    assert ([task.name for task in found.tasks], [task.name for task in found.flagged]) == (["a"], ["b"])
    assert rows(found)["stitch · built-in"].eager.ratio == pytest.approx(2.0)


def test_only_equal_setups_are_compared_and_the_fuller_one_is_shown(people):
    make_ranked(people.alice, "a", 2.0)
    make_ranked(people.alice, "a", 5.0, device="cpu")
    make_ranked(people.alice, "a", 6.0, precision="bf16")
    make_ranked(people.alice, "b", 2.0)
    found = board(people.alice, Filters())
    assert (found.setup.device_model, found.setup.precision, len(found.tasks)) == ("h200", "fp32-strict", 2)
    assert rows(board(people.alice, Filters(precision="bf16")))["stitch · built-in"].eager.ratio == pytest.approx(6.0)
    assert rows(board(people.alice, Filters(device="cpu-x86_64-2c")))["stitch · built-in"].eager.ratio == pytest.approx(5.0)


def test_against_the_best_baseline_means_ranks_and_shares_are_others(people):
    make_ranked(people.alice, "a", 1.4)
    make_ranked(people.alice, "a", 3.0, llm="gpt-x")
    found = board(people.alice, Filters(against="best"))
    shares = {name: row.fast for name, row in rows(found).items() if not row.baseline}
    assert shares == {"stitch · gpt-x": 1.0, "stitch · built-in": 0.0}
    assert rows(found)["stitch · built-in"].best.ratio == pytest.approx(1.4 / 1.5)


def test_entries_are_told_apart_by_workflow_and_roles_and_can_be_chosen(people):
    make_ranked(people.alice, "a", 2.0)
    make_ranked(people.alice, "a", 3.0, llm="gpt-x")
    make_ranked(people.alice, "a", 4.0, workflow="descend", llm="gpt-x")
    make_ranked(people.alice, "a", 5.0, workflow="verify")
    for filters, expected in [
        (Filters(), {"stitch · built-in", "stitch · gpt-x", "descend · built-in", "own programs · alice"}),
        (Filters(workflow="stitch"), {"stitch · built-in", "stitch · gpt-x"}),
        (Filters(llm="gpt-x"), {"stitch · gpt-x"}),
        (Filters(llm="built-in"), {"stitch · built-in", "descend · built-in"}),
        (Filters(coder="gpt-x"), {"stitch · gpt-x"}),
        (Filters(workflow="none"), set()),
    ]:
        assert {row.name.short for row in board(people.alice, filters).entries} == expected, filters


@pytest.mark.parametrize(("sort", "first"), [("", "gpt-x"), ("dollars", "built-in"), ("fast", "gpt-x"), ("passed", "gpt-x")])
def test_sorting(people, sort, first):
    make_ranked(people.alice, "a", 3.0, llm="gpt-x", dollars=1.0)
    make_ranked(people.alice, "a", 0.9)
    assert board(people.alice, Filters(sort=sort)).entries[0].name.short == f"stitch · {first}"


# --- Verdicts


@pytest.mark.parametrize("value", ["questioned", "hack", "retracted"])
def test_a_judged_result_leaves_the_ranking_and_comes_back(people, value):
    make_ranked(people.alice, "a", 2.0)
    bad = make_ranked(people.alice, "b", 9.0)
    verdicts.give(people.alice, bad, 1, value, "times a cached answer")
    found = board(people.alice, Filters())
    row = rows(found)["stitch · built-in"]
    assert (found.left_out, row.left_out, row.passed, len(found.tasks)) == (1, 1, 1, 2)
    assert row.eager.ratio == pytest.approx(math.sqrt(2))
    verdicts.give(people.alice, bad, 1, "withdrawn")
    assert rows(board(people.alice, Filters()))["stitch · built-in"].eager.ratio == pytest.approx(math.sqrt(18))


def test_where_one_of_several_runs_is_judged_the_others_count(people):
    bad = make_ranked(people.alice, "a", 9.0)
    make_ranked(people.alice, "a", 2.0)
    make_ranked(people.alice, "a", 10.0)
    assert rows(board(people.alice, Filters()))["stitch · built-in"].eager.ratio == pytest.approx(9.0)
    verdicts.give(people.alice, bad, 1, "hack", "times a cached answer")
    assert rows(board(people.alice, Filters()))["stitch · built-in"].eager.ratio == pytest.approx(2.0)


def test_an_accepted_result_stays(people):
    run = make_ranked(people.alice, "a", 2.0)
    verdicts.give(people.alice, run, 1, "accepted")
    assert rows(board(people.alice, Filters()))["stitch · built-in"].passed == 1


# --- Who sees what


def test_a_result_is_its_teams_until_it_is_published(people):
    run = make_ranked(people.alice, "secret", 2.0)
    assert board(people.bob, Filters()).entries and not board(people.charlie, Filters()).entries
    Run.objects.filter(pk=run.pk).update(published=True)  # set directly, as by any page or call: a trigger updates the ranking
    assert [task.name for task in board(people.charlie, Filters()).tasks] == ["secret"]
    Run.objects.filter(pk=run.pk).update(published=False)
    assert not board(people.charlie, Filters()).rows


def test_others_see_the_median_of_what_was_published(people):
    make_ranked(people.alice, "a", 2.0, published=True)
    make_ranked(people.alice, "a", 8.0)
    make_ranked(people.alice, "a", 9.0)
    assert rows(board(people.alice, Filters()))["stitch · built-in"].eager.ratio == pytest.approx(8.0)
    theirs = rows(board(people.charlie, Filters()))["stitch · built-in"]
    assert (theirs.eager.ratio, theirs.runs) == (pytest.approx(2.0), 1)
    assert rows(board(people.alice, Filters(whose="published")))["stitch · built-in"].eager.ratio == pytest.approx(2.0)
    assert not board(people.charlie, Filters(whose="ours")).rows


def test_the_same_entry_of_two_teams_is_one_row(people):
    make_ranked(people.alice, "a", 2.0)
    make_ranked(people.charlie, "a", 6.0, published=True)
    row = rows(board(people.alice, Filters()))["stitch · built-in"]
    assert (row.eager.ratio, row.runs, row.tried) == (pytest.approx(2.0), 2, 1)


def test_a_private_result_is_in_no_ranking(people):
    run = make_ranked(people.alice, "a", 2.0)
    set_visibility(run, "private")
    assert not board(people.alice, Filters()).rows and not board(people.bob, Filters()).rows
    assert Result.objects.get(run=run).team_runs is None


def test_a_team_prefers_who_sees_new_results_and_a_choice_survives_a_rebuild(people):
    Preference.objects.create(team=people.alice.personal_team, visibility="everyone")
    run = make_ranked(people.alice, "a", 2.0)
    assert (Run.objects.get(pk=run.pk).published, Result.objects.get(run=run).visibility) == (True, "everyone")
    set_visibility(run, "private")
    rebuild(run.pk)
    assert Result.objects.get(run=run).visibility == "private" and Listing.objects.get(run=run).visibility == "private"


# --- The projection


COMPARED = [field.name for field in Result._meta.fields if field.name != "id"]


def everything() -> list[tuple]:
    return sorted(Result.objects.values_list(*COMPARED, "provenance__comparisons", "provenance__environment", "provenance__flags"), key=str)


def test_rows_written_with_the_runs_and_rows_rebuilt_are_the_same(people):
    for task in ("a", "b"):
        for ratio in (3.0, None, 0.9, 2.0):
            make_ranked(people.alice, task, ratio, dollars=0.1, published=task == "a" and ratio == 3.0)
    judged = make_ranked(people.alice, "a", 7.0, llm="gpt-x")
    make_ranked(people.charlie, "b", 1.5, published=True)
    verdicts.give(people.alice, judged, 1, "questioned", "too good")
    set_visibility(Run.objects.filter(task__name="b", team=people.alice.personal_team).first(), "private")
    before = everything()
    assert count_all() == 0, "the triggers have decided as the whole table is decided"
    call_command("rebuild_leaderboard")
    assert everything() == before
    with connection.cursor() as cursor:
        cursor.execute("UPDATE leaderboard_result SET team_runs = 1, public_runs = NULL")
    assert count_all() > 0
    assert everything() == before


def test_rebuilding_a_run_keeps_its_row_and_its_verdict(people):
    run = make_ranked(people.alice, "a", 2.0)
    verdicts.give(people.alice, run, 1, "questioned", "too good")
    before = everything()
    rebuild(run.pk)
    assert everything() == before


def test_cancelled_runs_and_quick_verdicts_are_no_results(people):
    make_ranked(people.alice, "a", None, outcome="cancelled")
    assert not Result.objects.exists()
    Candidate.objects.all().delete()
    assert not Entry.objects.exists()


def test_a_report_without_the_static_stage_is_no_result(people, monkeypatch):
    from tests.unit.webapp import ranked

    honest = ranked.report_of
    monkeypatch.setattr(ranked, "report_of", lambda *a, **k: honest(*a, **k).model_copy(update={"without_static": True, "faster": False}))
    make_ranked(people.alice, "a", 2.0)
    assert not Result.objects.get().confirmed
