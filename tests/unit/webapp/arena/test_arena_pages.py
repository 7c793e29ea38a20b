"""The arena's pages: who may see one, what starting one creates, and what the table shows for finished runs."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from agents.settings import Budget
from webapp.arena.curves import plot
from webapp.arena.models import Arena
from webapp.arena.services import Chosen, create_arena, standing
from webapp.runs.models import Event, Run
from webapp.tasks.examples import examples

pytestmark = pytest.mark.django_db
START = reverse("arena:start")
FORM = {
    "name": "", "tasks": ["example:softmax", "example:rms_norm"], "workflows": ["stitch", "random"], "llm": "built-in", "seeds": "1-2",
    "device": "cpu", "precision": "fp32-strict", "calls": "", "candidates": "4", "dollars": "", "verifier_minutes": "5",
}  # fmt: skip


def make_arena(user, workflows=("stitch", "random"), seeds=(1, 2), tasks=("softmax", "rms_norm")) -> Arena:
    chosen = Chosen(workflows, seeds, "built-in", "cpu", "fp32-strict", Budget(candidates=4, seconds=None))
    sources = {example.slug: example.source for example in examples()}
    return create_arena(team=user.personal_team, user=user, name="two tasks", tasks=[(name, sources[name]) for name in tasks], chosen=chosen)


def end(run: Run, ratio: float | None, **spent) -> None:
    run.state, run.outcome = "finished", "improved" if ratio else "failed"
    run.speedup = {"ratio": ratio, "low": ratio * 0.95, "high": ratio * 1.05} if ratio else None
    run.spent = {"candidates": 4, "verifier_seconds": 60.0, **spent}
    run.save()


def test_an_empty_page_says_what_an_arena_is(people):
    assert "No arena yet" in people.client("alice").get(reverse("arena:list")).content.decode()


def test_a_start_queues_a_run_for_each_task_workflow_and_seed(people):
    answer = people.client("alice").post(START, FORM)
    arena = Arena.objects.get()
    assert answer.status_code == 302 and answer["Location"] == reverse("arena:arena", args=[arena.pk])
    runs = Run.objects.filter(arena_entry__arena=arena)
    assert sorted({(r.title, r.workflow, r.settings["seed"]) for r in runs}) == sorted(
        {(t, w, s) for t in ("softmax", "rms norm") for w in ("stitch", "random") for s in (1, 2)}
    )
    assert {run.settings["budget"]["candidates"] for run in runs} == {4} and {run.settings["budget"]["seconds"] for run in runs} == {None}
    assert {run.state for run in runs} == {"queued"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tasks": []}, "at least one task"),
        ({"workflows": []}, "at least one workflow"),
        ({"seeds": "many"}, "numbers and ranges"),
        ({"seeds": "1-100"}, "more than an arena holds"),
        ({"llm": "nobody"}, "Select a valid choice"),
    ],
)
def test_a_form_that_cannot_be_used_says_why(people, change, said):
    answer = people.client("alice").post(START, {**FORM, **change})
    assert answer.status_code == 422 and said in answer.content.decode()
    assert not Arena.objects.exists()


def test_an_arena_is_its_teams(people):
    arena = make_arena(people.alice)
    page = reverse("arena:arena", args=[arena.pk])
    assert people.client("bob").get(page).status_code == 200
    assert people.client("charlie").get(page).status_code == 404
    assert people.client("charlie").get(reverse("arena:export", args=[arena.pk])).status_code == 404
    assert people.client("charlie").post(reverse("arena:cancel", args=[arena.pk])).status_code == 404
    assert "two tasks" not in people.client("charlie").get(reverse("arena:list")).content.decode()


def test_the_table_counts_what_was_confirmed_and_shows_the_worst_seed(people):
    arena = make_arena(people.alice)
    for entry in arena.entries.select_related("run"):
        stitch = entry.run.workflow == "stitch"
        end(entry.run, (4.0 if entry.seed == 1 else 1.0001) if stitch else None)
    found = standing(arena)
    best, control = found.scores
    assert found.finished and (best.workflow, best.success, best.runs) == ("stitch", 4, 4)
    assert best.geometric_mean == pytest.approx(2.0, rel=1e-3) and best.low <= 2.0 <= best.high
    assert best.worst_seed == 2 and best.worst_geometric_mean == pytest.approx(1.0, rel=1e-3)
    assert (control.workflow, control.success, control.geometric_mean) == ("random", 0, 1.0)
    page = people.client("alice").get(reverse("arena:arena", args=[arena.pk])).content.decode()
    assert "4/4" in page and "0/4" in page and "every 5s" not in page
    content = json.loads(people.client("alice").get(reverse("arena:export", args=[arena.pk])).content)
    assert content["ended"] == 8 and content["scores"][0]["workflow"] == "stitch" and len(content["rows"]) == 8


def test_a_page_that_goes_on_asks_again_and_a_fragment_is_enough(people):
    arena = make_arena(people.alice)
    page = reverse("arena:arena", args=[arena.pk])
    whole = people.client("alice").get(page).content.decode()
    part = people.client("alice").get(page, HTTP_HX_REQUEST="true").content.decode()
    assert "every 5s" in whole and "<html" in whole
    assert "every 5s" in part and "<html" not in part


def test_cancelling_asks_every_run_that_has_not_ended(people):
    arena = make_arena(people.alice)
    first = arena.entries.first().run
    end(first, 2.0)
    people.client("bob").post(reverse("arena:cancel", args=[arena.pk]))
    asked = set(Event.objects.filter(kind="control.requested").values_list("run_id", flat=True))
    assert len(asked) == 7 and first.pk not in asked


def test_the_plot_needs_a_program_and_keeps_its_labels_apart():
    assert plot({}) is None and plot({"stitch": [[1.0]]}) is None
    drawn = plot({name: [[1.0, 1.5, 2.0], [1.0, 1.2]] for name in ("stitch", "forge", "pilot", "branch")})
    places = sorted(line.label_y for line in drawn.lines)
    assert all(after - before >= 14 for before, after in zip(places, places[1:], strict=False))
    assert drawn.lines[0].last == pytest.approx((2.0 * 1.2) ** 0.5)
