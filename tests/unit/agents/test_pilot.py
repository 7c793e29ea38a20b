"""cuPilot's loop: strategies are crossed, translated, revised and realigned; elites survive; sizes depend on the budget."""

import pytest
from workflow_fakes import SearchRoles, engine

from agents.call_graph import call_graph
from agents.settings import Budget
from agents.workflows.pilot import REVISIONS, Sizes, sizes_for


def budget(candidates=None, calls=None) -> Budget:
    return Budget(candidates=candidates, calls=calls)


def test_sizes_follow_the_budget():
    assert sizes_for(budget()) == Sizes(3, 4, 30, 5)
    assert sizes_for(budget(151)) == Sizes(3, 4, 30, 5)
    assert sizes_for(budget(8)) == Sizes(1, 2, 3, 2)
    for programs in range(1, 200):
        sizes = sizes_for(budget(programs))
        needed = 1 + sizes.epochs * (sizes.population + sizes.generations * sizes.offspring)
        assert needed <= max(programs, 4) and sizes.population > sizes.offspring
    assert sizes_for(budget(1000, calls=30)) == sizes_for(budget(10))


@pytest.mark.asyncio
async def test_the_call_graph():
    roles = SearchRoles(faults=(0, 0, 2, 0, 9))
    run = engine("pilot", roles, candidates=60)
    await run.execute()
    graph = call_graph(run.journal.events)
    by = {name: [c for c in graph if c.situation == name] for name in ("ideas", "cross", "realise", "repair", "align")}
    assert all(by.values())
    assert all(len(c.parents) == 2 and all(p.startswith("idea") for p in c.parents) for c in by["cross"]), "strategies, not programs"
    assert all(len(set(c.parents)) == 2 for c in by["cross"])
    realised = {p for c in by["realise"] for p in c.parents if p.startswith("idea")}
    assert {c.made[0] for c in by["cross"]} <= realised | {by["cross"][-1].made[0]}, "every cross is translated"
    revisions: dict[str, int] = {}
    for call in by["repair"]:
        revisions[call.span.rpartition("/")[0]] = revisions.get(call.span.rpartition("/")[0], 0) + 1
    assert max(revisions.values()) == REVISIONS
    passed = {f"candidate {c.number}" for c in run.summary.candidates if c.status == "passed" and c.span.startswith("epoch")}
    assert {c.parents[1] for c in by["align"]} == passed, "what survived is re-aligned, what did not is not"
    aligned_at = {c.made[0]: at for at, c in enumerate(graph) if c.situation == "align"}
    for at, call in enumerate(graph):
        if call.situation == "cross":
            assert all(aligned_at[p] < at for p in call.parents), "only strategies that say what their program does are crossed"


@pytest.mark.asyncio
async def test_epochs_begin_from_the_best_kernel_and_elites_stay():
    roles = SearchRoles(faults=(0,))
    run = engine("pilot", roles, candidates=100)
    summary = await run.execute()
    parents = {}
    for candidate in summary.candidates:
        if candidate.span.endswith("attempt-1"):
            parents.setdefault(candidate.span.partition("/")[0], set()).add(candidate.parent)
    assert parents["epoch-1"] == {1} and len(parents["epoch-2"]) == 1
    best_then = max((c for c in summary.candidates if c.span == "first" or c.span.startswith("epoch-1")), key=lambda c: c.speedup.low)
    assert parents["epoch-2"] == {best_then.number}
    first_of_second = [s for s in roles.seen if s.situation == "cross"]
    assert first_of_second, "and evolution goes on"


@pytest.mark.asyncio
async def test_one_child_of_a_generation_explores():
    roles = SearchRoles()
    run = engine("pilot", roles, candidates=40)
    await run.execute()
    generations = [c.span for c in call_graph(run.journal.events) if c.situation == "ideas" and "generation" in c.span]
    assert generations == sorted(set(generations)) and generations
    assert all(len(c.made) == 1 for c in call_graph(run.journal.events) if c.situation == "ideas" and "generation" in c.span)
