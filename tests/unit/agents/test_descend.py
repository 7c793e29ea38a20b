"""Coordinate descent and the workflow around it: how close it comes to the best point of a grid, and how many measurements it takes."""

import itertools
import math
import random

import pytest
from agent_fakes import TASK, FakeClient
from workflow_fakes import BEST, START, SearchRoles, engine, program

from agents.call_graph import call_graph
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.roles.situation import Knob
from agents.settings import Settings
from agents.workflows.descending import MOST_LAST, SHARE, descend, values_of
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio


def occupancy_table(seed: int) -> tuple[list[Knob], dict[tuple[int, ...], float]]:
    """Returns the made-up speeds of a kernel: block size, work per thread, vector width and unrolling affect registers, occupancy and loads in
    flight; with 0.4 % noise."""
    draw = random.Random(seed)
    blocks, work, vector, unroll = (64, 128, 256, 512, 1024), (1, 2, 4, 8), (1, 4), (1, 2, 4, 8)
    base, per_work, per_unroll = draw.uniform(18, 40), draw.uniform(2, 9), draw.uniform(1, 6)
    wanted, tail = draw.uniform(30, 90), draw.uniform(0, 0.3)
    table = {}
    for b, w, v, u in itertools.product(blocks, work, vector, unroll):
        registers = base + per_work * w + per_unroll * u + 2 * v
        threads = min(2048, int(65536 // (registers * b)) * b) if registers * b <= 65536 else 0
        in_flight = threads / 2048 * w * u**0.5 * (1.6 if v == 4 else 1.0) * 24
        bandwidth = 1 - math.exp(-in_flight / wanted)
        speed = 3 * bandwidth / (1 + tail * (b / 1024) ** 2 + 0.02 * u)
        table[b, w, v, u] = speed * draw.uniform(0.996, 1.004) if threads else 0.0
    knobs = [Knob("block", blocks, 256), Knob("work", work, 1), Knob("vector", vector, 4), Knob("unroll", unroll, 1)]
    return knobs, table


async def asked(knobs, table, limit):
    measured = []

    async def measure(values):
        measured.append(tuple(values[k.name] for k in knobs))
        return table[measured[-1]]

    start = tuple(k.value for k in knobs)
    found = await descend(knobs, table[start], measure, limit)
    return table[tuple(found[k.name] for k in knobs)], measured


async def test_near_the_best_of_twenty_grids_for_a_third_of_the_measurements():
    reached = []
    for seed in range(20):
        knobs, table = occupancy_table(seed)
        best, measured = await asked(knobs, table, len(table) // SHARE)
        assert len(measured) == len(set(measured)) <= len(table) // SHARE
        reached.append(best / max(table.values()))
    assert min(reached) >= 0.95, reached


async def test_it_stops_early_on_a_smooth_slope_and_never_asks_twice():
    knobs = [Knob("a", tuple(range(10)), 0), Knob("b", tuple(range(10)), 9)]
    table = {(a, b): 100 - (a - 7) ** 2 - (b - 2) ** 2 for a in range(10) for b in range(10)}
    best, measured = await asked(knobs, table, 100)
    assert best == 100 and len(measured) == len(set(measured)) < 60


async def test_the_limit_and_wrong_programs():
    knobs = [Knob("a", (1, 2, 3, 4), 2), Knob("b", (1, 2, 3), 1)]
    table = {(a, b): 0.0 for a in (1, 2, 3, 4) for b in (1, 2, 3)} | {(2, 1): 1.0, (2, 2): 1.5}
    best, measured = await asked(knobs, table, 4)
    assert best == 1.5 and len(measured) == 4
    best, measured = await asked(knobs, table, 0)
    assert best == 1.0 and measured == []


async def test_values_and_knobs_with_one_value():
    knobs = [Knob("a", (8,), 8), Knob("b", (1, 2), 1)]
    best, measured = await asked(knobs, {(8, 1): 1.0, (8, 2): 2.0}, 9)
    assert best == 2.0 and measured == [(8, 2)]
    assert values_of(knobs, {"a": 0, "b": 1}) == {"a": 8, "b": 2}


async def test_the_workflow_explores_then_tunes_the_best():
    roles = SearchRoles(first_fault=1)
    run = engine("descend", roles)
    summary = await run.execute()
    graph = call_graph(run.journal.events)
    kinds = [c.situation for c in graph if c.role == "coder"]
    assert kinds[:6] == ["first", "repair", "optimise", "optimise", "optimise", "tune"], "structures, then numbers"
    tuned = [c for c in graph if c.span.startswith("descend-1/")]
    start = tuned[0].parents[0]
    assert all((c.situation, c.parents) == ("tune", (start,)) for c in tuned) and 1 <= len(tuned) <= 20 // SHARE
    assert all(c.situation in ("ideas", "realise") for c in graph if c.span.startswith("storm")), "then samples, until they bring nothing"
    assert summary.speedup.ratio == pytest.approx(BEST, rel=0.05)


async def test_what_prints_alike_is_not_measured_twice():
    class Same(SearchRoles):
        async def tune(self, span, situation, attempt, values):
            return self._edit({**START, "vectorise": 1, "row-cache": 1, "parallel-split": 1})

    summary = await engine("descend", Same()).execute()
    assert len(summary.candidates) == len({c.sha for c in summary.candidates})
    assert any("the same program" in span.summary for span in summary.spans)


async def test_another_workflow_ends_with_a_short_descent_where_something_is_left():
    run = engine("forge", SearchRoles(), candidates=50)
    summary = await run.execute()
    tuned = [c for c in call_graph(run.journal.events) if c.situation == "tune"]
    assert 1 <= len(tuned) <= MOST_LAST and summary.speedup.ratio == pytest.approx(BEST, rel=0.05)
    spent = await engine("forge", SearchRoles(), candidates=4).execute()
    assert (spent.outcome, len(spent.candidates)) == ("improved", 4) and "Then tuning numbers ended early" in spent.reason
    reached = engine("forge", SearchRoles(), candidates=50, target=1.05)
    await reached.execute()
    assert not any(c.situation == "tune" for c in call_graph(reached.journal.events)), "the target was reached"


async def test_programs_without_numbers():
    class Plain(SearchRoles):
        def knobs(self, situation, attempt):
            return []

    summary = await engine("descend", Plain()).execute()
    assert summary.outcome == "improved" and "has no numbers to change" in summary.reason
    assert program(START) != ""


async def test_no_language_model_whatever_the_settings_say():
    """A missing profile ends other workflows; this one does not need any."""
    for workflow, ended in (("descend", False), ("forge", True)):
        journal = MemoryJournal()
        settings = Settings(workflow=workflow, planner="big", coder="big", judge="big")
        summary = await engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), settings, TASK, "softmax").execute()
        assert ("no LLM profile 'big'" in summary.reason) is ended
