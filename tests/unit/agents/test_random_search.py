"""The arena's control workflow: it draws at random, does not learn, and terminates."""

import pytest
from workflow_fakes import SearchRoles, engine

from agents.call_graph import call_graph
from agents.workflows.random_search import FRUITLESS

pytestmark = pytest.mark.asyncio


async def test_it_draws_ideas_crosses_and_numbers_and_asks_no_judge():
    roles = SearchRoles()
    run = engine("random", roles, candidates=40)
    summary = await run.execute()
    kinds = {c.situation for c in call_graph(run.journal.events)}
    assert kinds >= {"plan", "first", "ideas", "cross", "realise", "tune", "confirm"} and "diagnose" not in kinds
    assert len(summary.candidates) == 40 and len({c.sha for c in summary.candidates}) == 40, "nothing is measured twice"


async def test_the_seed_decides():
    async def programs(seed):
        return [c.sha for c in (await engine("random", SearchRoles(), candidates=15, seed=seed).execute()).candidates]

    first = await programs(1)
    assert first == await programs(1) and first != await programs(2)


async def test_it_ends_where_nothing_new_can_be_drawn():
    class Poor(SearchRoles):
        def knobs(self, situation, attempt):
            return []

    summary = await engine("random", Poor(most_ideas=3)).execute()
    assert summary.outcome in ("improved", "matched") and f"{FRUITLESS} draws in a row" in summary.reason
