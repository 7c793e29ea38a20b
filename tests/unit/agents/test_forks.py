"""Forks of every workflow at many events: the inherited part is replayed to its end, and the new settings apply from there on."""

from __future__ import annotations

import pytest
from agent_fakes import TASK, FakeClient
from scripted_models import ScriptedModels, plan, program
from workflow_fakes import SearchRoles, engine

from agents.forking import fork, settings_of
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.projection import project
from agents.settings import Budget, Settings
from tests.engines import engine_of
from tests.slowness import quick

pytestmark = pytest.mark.asyncio


def roles() -> SearchRoles:
    return SearchRoles(faults=(0, 1, 0, 4, 0, 9), first_fault=1)


async def forked(whole: MemoryJournal, at: int, settings: Settings) -> MemoryJournal:
    inherited, event = fork(whole.events, at, settings, by="ada")
    journal = MemoryJournal(inherited[0].run, inherited, whole.artefacts)
    await journal.append([event])
    return journal


@pytest.mark.parametrize("workflow", quick(["descend", "pilot", "branch", "beam", "worldmodel", "forge", "random"], 2))
async def test_a_workflow_passes_over_all_that_it_inherits(workflow):
    whole = MemoryJournal()
    await engine(workflow, roles(), whole, candidates=10).execute()
    new = settings_of(whole.events).model_copy(update={"budget": Budget(candidates=14), "target": 30.0, "seed": 0})
    length = len(whole.events)
    for at in [*range(1, length, max(1, length // 9)), length]:
        journal = await forked(whole, at, new)
        cut = journal.events[-1].payload["from"]["seq"]
        run = engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), new, TASK, "softmax", roles=roles().roles())
        summary = await run.execute()
        assert summary.state == "finished" and not summary.errors and summary.open_spans() == [], f"{workflow} at {at}: {summary.errors}"
        assert run.settings == new, f"{workflow} at {at}: something that was inherited is left"
        kept = {(e.payload["candidate"], e.payload["sha"]) for e in whole.events[:cut] if e.kind == "candidate.proposed"}
        assert kept <= {(c.number, c.sha) for c in summary.candidates} and len(summary.candidates) <= 14
        assert project(journal.events).model_dump() == summary.model_dump()


SCRIPT = {
    "planner/plan": [plan("s1", "s2")],
    "planner/replan": [plan("s3")],
    "coder/first": [program(1.2, tag="first"), program(1.25, tag="first again")],
    "coder/step": [program(status="wrong_result", tag="step"), program(1.3, tag="step again")],
    "coder/repair": [program(1.5, tag=f"repair {n}") for n in range(6)],
    "coder/optimise": [program(1.6 + n / 10, tag=f"optimise {n}") for n in range(9)],
}


@pytest.mark.slow
async def test_stitch_with_models_goes_on_with_another_coder():
    """Changing from a model to the compiler's diagnosis rules and back is the largest change that settings allow."""
    old = Settings(planner="scripted", coder="scripted", budget=Budget(calls=14, candidates=9))
    new = old.model_copy(update={"coder": "other", "target": 1.9, "budget": Budget(calls=30, candidates=12)})
    whole, first = MemoryJournal(), ScriptedModels(SCRIPT)
    verifier = LocalVerifier(whole, FakeClient(), "cpu")
    summary = await engine_of(whole, verifier, old, TASK, "softmax", models=first).execute()
    assert summary.outcome == "improved" and not summary.errors
    for at in range(1, len(whole.events) + 1, 4):
        journal, models = await forked(whole, at, new), ScriptedModels(SCRIPT)
        run = engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), new, TASK, "softmax", models=models)
        summary = await run.execute()
        assert summary.state == "finished" and not any("Diverged" in e or "unexpected" in e for e in summary.errors), f"at {at}: {summary.errors}"
        assert run.settings == new, f"at {at}"
        since = [e for e in journal.events if e.kind == "llm.requested" and e.seq > journal.events[at - 1].seq]
        by_coder = {e.payload["profile"] for e in since if e.agent == "coder"}
        assert by_coder <= {"other"}, f"at {at}: {by_coder}"
