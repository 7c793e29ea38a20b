"""Lessons from finished runs: rows made from their events, the record of a strategy, and inspirations that avoid a benchmark's split."""

from __future__ import annotations

import pytest
from django.urls import reverse

from agents.events import NewEvent
from agents.memory.inspirations import Split
from tests.unit.webapp.cast import make_run
from webapp.knowledge.models import Learned
from webapp.knowledge.ports import TeamInspirations, split_of
from webapp.runs import artefacts
from webapp.runs.models import Run, Verification
from webapp.runs.trace.append import append
from webapp.runs.trace.projection import rebuild
from webapp.tasks.models import Suite, Task

PLAN = {"steps": [{"id": "g1", "operators": ["softmax", "layer norm"]}]}
# number, parent, strategy, status, ratio, expected ratio
CANDIDATES = [
    (1, None, "fuse-row-reduction", "passed", 1.5, None),
    (2, 1, "vectorise", "passed", 1.5, 1.3),
    (3, 1, "one-pass-softmax", "passed", 2.4, 1.5),
    (4, 3, "row-cache", "wrong_result", None, 1.2),
]


def finish(run: Run, best: int | None = 3, outcome: str = "improved") -> Run:
    """Appends the trace of a stitch run with four candidates, the third of which is the confirmed result."""
    team = run.team_id
    task = {"sha": run.task.sha, "name": run.task.name}
    append(run.pk, [NewEvent(kind="run.started", payload={"task": task, "workflow": "stitch", "device": "cpu", "precision": "fp32-strict"})])
    append(run.pk, [NewEvent(kind="plan.proposed", payload=PLAN)])
    decided = None
    for number, parent, strategy, status, ratio, expected in CANDIDATES:
        span = f"step-{number}/attempt-1"
        if expected:
            payload = {"route": "optimise", "method": strategy, "expected": expected, "reason": "because"}
            decided = append(run.pk, [NewEvent(kind="decision.made", span=f"step-{number - 1}", payload=payload)])[0].seq
        program = artefacts.put(team, f"program {number}".encode(), "text/x-python", "p.py").model_dump()
        proposed = {
            "candidate": number,
            "parent": parent,
            "strategy": strategy,
            "step": "g1",
            "program": program,
            "sha": program["sha"],
            "changes": "x",
        }
        append(run.pk, [NewEvent(kind="candidate.proposed", span=span, payload=proposed)])
        speedup = {"ratio": ratio, "low": ratio * 0.98, "high": ratio * 1.02} if ratio else None
        before = next((r for n, _, _, _, r, _ in CANDIDATES if n == parent), None)  # timed in alternation with its parent program
        gain = {"ratio": ratio / before, "low": ratio / before * 0.98, "high": ratio / before * 1.02} if ratio and before else None
        verdict = {"key": f"{span}#1", "job": "verify", "candidate": number, "status": status, "tier": "quick", "speedup": speedup, "gain": gain}
        append(run.pk, [NewEvent(kind="verification.finished", span=span, payload=verdict)])
        if expected:
            append(run.pk, [NewEvent(kind="decision.made", span=span, payload={"of": decided, "expected": expected, "realised": None})])
    Verification.objects.filter(run=run).update(device_model="cpu-2c")
    speedup = {"ratio": 2.3, "low": 2.2, "high": 2.4} if best else None
    append(run.pk, [NewEvent(kind="run.finished", payload={"outcome": outcome, "reason": "", "best": best, "speedup": speedup})])
    run.refresh_from_db()
    return run


def rows() -> dict[str, tuple]:
    return {
        row.strategy: (row.outcome, row.expected, row.realised and round(row.realised, 3), row.confirmed, row.device_model)
        for row in Learned.objects.all()
    }


EXPECTED = {
    "fuse-row-reduction": ("gained", None, 1.5, True, "cpu-2c"),
    "vectorise": ("no gain", 1.3, 1.0, False, "cpu-2c"),
    "one-pass-softmax": ("gained", 1.5, 1.6, True, "cpu-2c"),
    "row-cache": ("not right", 1.2, None, False, "cpu-2c"),
}


def test_a_finished_run_is_learned_from_and_rebuilt(people):
    run = finish(make_run(people.alice))
    assert rows() == EXPECTED
    Learned.objects.update(outcome="gained", confirmed=True)
    Verification.objects.update(device_model="cpu-2c")
    Learned.objects.filter(strategy="vectorise").delete()
    rebuild(run.pk)
    assert {name: row[:4] for name, row in rows().items()} == {name: row[:4] for name, row in EXPECTED.items()}


def test_a_run_without_a_confirmed_result_confirms_nothing(people):
    finish(make_run(people.alice), best=None, outcome="failed")
    assert Learned.objects.count() == 4 and not Learned.objects.filter(confirmed=True).exists()


def find(team, operators=("softmax",), device="cpu", exclude=None):
    return [one.strategy for one in TeamInspirations(team.pk)._find(operators, device, exclude or Split())]


def test_inspirations_are_the_teams_own_confirmed_ones_of_the_same_device(people):
    finish(make_run(people.alice))
    team = people.alice.personal_team
    assert find(team) == ["one-pass-softmax", "fuse-row-reduction"], "the one that brought most first"
    assert find(team, ["Layer_Norm"]) == ["one-pass-softmax", "fuse-row-reduction"]
    assert find(team, ["convolution"]) == [] and find(team, device="cuda:0") == [] and find(people.charlie.personal_team) == []
    line = TeamInspirations(team.pk)._find(["softmax"], "cpu", Split())[0].line
    assert line == "- one-pass-softmax on softmax, layer norm (cpu-2c): 1.60x over the program before it: x"


def test_a_task_never_inspires_itself_nor_its_suite(people):
    run = finish(make_run(people.alice))
    team = people.alice.personal_team
    own = split_of(run)
    assert own.tasks == {run.task.sha} and find(team, exclude=own) == []

    bench = Suite.objects.create(team=team, name="KernelBench L1", slug="kernelbench-level1")
    other = Suite.objects.create(team=people.charlie.personal_team, name="KernelBench L2", slug="kernelbench-level2")
    Task.objects.filter(pk=run.task_id).update(suite=bench)
    scored = Task.objects.create(team=people.charlie.personal_team, suite=other, sha="f" * 64, name="another", source="…")
    theirs = Run.objects.create(team=scored.team, task=scored, title="another")
    assert split_of(theirs).suites == {"KernelBench L1", "KernelBench L2"}, "the levels are one benchmark, whoever imported them"
    assert find(team, exclude=split_of(theirs)) == []

    own_work = Task.objects.create(team=team, sha="e" * 64, name="mine", source="…")
    mine = Run.objects.create(team=team, task=own_work, title="mine")
    assert find(team, exclude=split_of(mine)) == ["one-pass-softmax", "fuse-row-reduction"], "work of one's own may learn from a benchmark"


def test_the_pages_say_what_was_hoped_and_what_came(people):
    run = finish(make_run(people.alice))
    page = people.client("bob").get(reverse("knowledge:strategies")).content.decode()
    assert page.count('class="cell-title"') >= 34 and "1.60×" in page
    own = people.client("bob").get(reverse("knowledge:strategy", args=["one-pass-softmax"])).content.decode()
    assert "Triton" in own and "1.60×" in own and "1.50×" in own and reverse("runs:candidate", args=[run.pk, 3]) in own and "confirmed" in own
    theirs = people.client("charlie").get(reverse("knowledge:strategy", args=["one-pass-softmax"])).content.decode()
    assert "Not tried yet" in theirs and "1.60×" not in theirs
    assert people.client("bob").get(reverse("knowledge:strategy", args=["no-such"])).status_code == 404


@pytest.mark.parametrize(
    ("query", "there", "absent"),
    [
        ({"device": "cpu"}, "fuse-pointwise", "cuda-graph"),
        ({"answers": "launch"}, "cuda-graph", "one-pass-softmax"),
        ({"q": "shuffle barrier"}, "warp-reductions", "channels-last"),
        ({"q": "no such words"}, "No strategy matches", "fuse-pointwise"),
    ],
)
def test_the_catalogue_can_be_narrowed(people, query, there, absent):
    page = people.client("alice").get(reverse("knowledge:strategies"), query).content.decode()
    assert there in page and f">{absent}<" not in page and f"strategies/{absent}/" not in page


def test_quotients_of_two_speedups_over_eager_are_discarded(people):
    from importlib import import_module

    from django.apps import apps

    run = finish(make_run(people.alice))
    Learned.objects.filter(run=run, candidate=2).update(realised=1.35, outcome="gained")  # the form in which it used to be written
    import_module("webapp.knowledge.migrations.0002_gains_in_turn").discard(apps, None)
    kept = {row.candidate: (row.outcome, row.realised) for row in Learned.objects.filter(run=run)}
    assert kept[1] == ("gained", 1.5) and kept[2] == ("not measured", None) and kept[4][0] == "not right"
