"""CudaForge's loop: what its roles see, its ten rounds, and that the best program is kept."""

import pytest
from workflow_fakes import SearchRoles, engine

from agents.call_graph import call_graph
from agents.roles.situation import Advice, Unusable
from agents.workflows.forge import ROUNDS

pytestmark = pytest.mark.asyncio


async def test_coder_and_judge_see_only_the_latest_kernel_and_judgement():
    roles = SearchRoles(first_fault=2)
    run = engine("forge", roles)
    await run.execute()
    calls = [seen for seen in roles.seen if seen.situation in ("write", "advise")]
    assert calls[0].attempts == () and len(calls) > 8
    assert all(len(seen.attempts) == 1 and seen.attempts == (seen.parent,) for seen in calls[1:])
    line = [(c.role, c.situation, c.parents) for c in call_graph(run.journal.events) if c.span.startswith("round-")]
    assert line[:4] == [
        ("coder", "first", ()),
        ("judge", "diagnose", ("candidate 1",)),
        ("coder", "repair", ("candidate 1", "diagnosis of candidate 1")),
        ("judge", "diagnose", ("candidate 2",)),
    ]
    assert all(role == ("coder", "judge")[at % 2] for at, (role, _, _) in enumerate(line)), "one after the other"
    assert not any(seen.situation in ("ideas", "cross", "align", "realise") for seen in roles.seen)


async def test_ten_rounds_from_the_latest_kernel_and_the_best_is_kept_aside():
    class Wavering(SearchRoles):
        async def write(self, span, situation, parent, advice):
            edit = await super().write(span, situation, parent, advice)
            if parent is not None and parent.number % 2 == 0:
                return self._edit({**dict(edit.options[0]), "block": 1024, "unroll": 1, "row-cache": 0})
            return edit

        async def advise(self, span, situation, attempt):
            found = await super().advise(span, situation, attempt)
            return Advice(found.diagnosis, "optimise", "try this", "row-cache", 1.1)

    roles = Wavering()
    run = engine("forge", roles)
    summary = await run.execute()
    rounds = [c for c in summary.candidates if c.span.startswith("round-")]
    assert len(rounds) == ROUNDS
    assert [c.parent for c in rounds] == [None, *range(1, ROUNDS)], "always from the current kernel"
    judged = [e for e in run.journal.events if e.kind == "diagnosis.made"]
    assert len(judged) == ROUNDS - 1, "the last kernel needs no judgement"
    speeds = {c.number: c.speedup.ratio for c in summary.candidates}
    assert speeds[summary.best] == max(speeds.values()) and speeds[rounds[-1].number] < speeds[summary.best]


async def test_a_reply_without_a_program_costs_a_round_and_the_next_is_told():
    class Broken(SearchRoles):
        told: list = []

        async def write(self, span, situation, parent, advice):
            self.told.append(list(situation.refusals))
            if len(self.told) in (1, 3):
                raise Unusable("the reply held no program")
            return await super().write(span, situation, parent, advice)

    roles = Broken()
    summary = await engine("forge", roles).execute()
    assert summary.outcome == "improved"
    assert roles.told[:4] == [[], ["the reply held no program"], [], ["the reply held no program"]]
    assert len([s for s in summary.spans if s.path.startswith("round-")]) <= ROUNDS
