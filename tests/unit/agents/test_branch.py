"""PIKE-B's loop: ten branches from the top four, at most five fixes, the reference in the pool, and no more workers than allowed."""

import asyncio
import sys

import pytest
from agent_fakes import FakeClient
from workflow_fakes import SearchRoles, engine

from agents.call_graph import call_graph
from agents.settings import Settings
from agents.workflows.branch import BRANCHES, FIXES, PARENTS

pytestmark = pytest.mark.asyncio


def phases(summary) -> dict[str, list]:
    found: dict[str, list] = {}
    for candidate in summary.candidates:
        if candidate.span.startswith("phase-"):
            found.setdefault(candidate.span.partition("/")[0], []).append(candidate)
    return found


async def test_the_call_graph():
    run = engine("branch", SearchRoles(faults=(0, 0, 1, 0, 9)), candidates=200)
    summary = await run.execute()
    found = phases(summary)
    assert len(found) >= 2
    graph = call_graph(run.journal.events)
    assert {c.situation for c in graph if c.role == "planner"} == {"plan", "ideas"}
    firsts = {c.made[0]: c for c in graph if c.situation == "realise"}
    for name, candidates in found.items():
        branches = {c.span.split("/")[1] for c in candidates}
        assert len(branches) <= BRANCHES
        number = int(name.partition("-")[2])
        earlier = [c for c in summary.candidates if c.status == "passed" and c.span.startswith("phase-") and int(c.span.split("/")[0][6:]) < number]
        ranked = sorted(earlier, key=lambda c: (-c.speedup.ratio, c.number))
        pool = [c.number for c in ranked if c.speedup.ratio > 1.0][:PARENTS]
        pool += [None] if len(pool) < PARENTS else []
        parents = {c.parent for c in candidates if f"candidate {c.number}" in firsts}
        assert parents == set((pool + [c.number for c in ranked if c.speedup.ratio <= 1.0])[:PARENTS])
        shares = [sum(c.parent == parent for c in candidates if f"candidate {c.number}" in firsts) for parent in parents]
        assert max(shares) - min(shares) <= 1, "the parents share the branches"
    fixes: dict[str, int] = {}
    for call in graph:
        if call.situation == "repair":
            fixes[call.span.rpartition("/")[0]] = fixes.get(call.span.rpartition("/")[0], 0) + 1
    assert max(fixes.values()) == FIXES and min(fixes.values()) == 1


async def test_the_reference_stays_in_the_pool_where_programs_are_slower():
    class Slow(SearchRoles):
        def _edit(self, *given, **named):
            edit = super()._edit(*given, **named)
            return type(edit)(**{**edit.__dict__, "source": f"# speed {0.5 + 0.001 * len(self.seen)}\n{edit.source.partition(chr(10))[2]}"})

    run = engine("branch", Slow(), candidates=30)
    summary = await run.execute()
    second = phases(summary)["phase-2"]
    assert None in {c.parent for c in second}


@pytest.mark.parametrize(("workflow", "workers"), [("branch", 1), ("branch", 4), ("branch", 7), ("pilot", 2), ("pilot", 4)])
async def test_no_more_workers_than_there_are_places(workflow, workers):
    class Counting(FakeClient):
        now = most = 0

        async def run(self, job, on_stage=None):
            if job.kind != "verify":
                return await super().run(job, on_stage)
            Counting.now += 1
            Counting.most = max(Counting.most, Counting.now)
            await asyncio.sleep(0.002)
            try:
                return await super().run(job, on_stage)
            finally:
                Counting.now -= 1

    summary = await engine(workflow, SearchRoles(), client=Counting(), candidates=25, workers=workers).execute()
    assert Counting.most == workers == summary.started.workers


async def test_workers_are_at_least_one_and_not_beyond_reason():
    for workers in (0, -1, 17):
        with pytest.raises(ValueError, match="workers"):
            Settings(workers=workers)


async def test_queries_are_bounded_with_fixes_among_them(monkeypatch):
    monkeypatch.setattr(sys.modules["agents.workflows.branch"], "QUERIES", 40)
    roles = SearchRoles(faults=(9,))
    run = engine("branch", roles)
    summary = await run.execute()
    asked = [s for s in roles.seen if s.situation in ("ideas", "realise") or (s.situation == "write")]
    assert len(asked) <= 40
    assert summary.outcome == "failed" and "no program passed" in summary.reason


async def test_the_budget_is_not_overshot_by_parallel_workers():
    for candidates in (1, 3, 7, 12):
        summary = await engine("branch", SearchRoles(faults=(0, 1)), candidates=candidates).execute()
        assert len(summary.candidates) == candidates
        assert [c.number for c in summary.candidates] == list(range(1, candidates + 1))
