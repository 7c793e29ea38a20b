"""`first_program="built-in"`: the compiler's program is candidate 1, and a model improves it."""

from __future__ import annotations

import asyncio

import pytest
from agent_fakes import TASK, FakeClient, settings
from scripted_models import ScriptedModels, diagnosis, optimise, plan, program

from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.projection import Summary
from agents.run import Engine
from agents.settings import Budget
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio
ROLES = {"planner": "built-in", "coder": "scripted", "judge": "scripted"}


def engine(models: ScriptedModels, journal: MemoryJournal, **changes) -> Engine:
    chosen = settings(**{**ROLES, "first_program": "built-in", "budget": Budget(candidates=20, calls=60), **changes})
    return engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), chosen, TASK, "softmax", models=models)


async def run(script: dict, **changes) -> tuple[ScriptedModels, Summary]:
    models = ScriptedModels(script)
    return models, await engine(models, MemoryJournal(), **changes).execute()


async def test_the_model_answers_a_diagnosis_of_the_compilers_program():
    models, summary = await run(
        {
            "verifier/diagnose": [optimise, diagnosis("stop")],
            "coder/optimise": [program(1.9, tag="wide")],
        }
    )
    assert models.purposes == ["verifier/diagnose", "coder/optimise", "verifier/diagnose"]
    first, second = summary.candidates[:2]
    assert (first.parent, first.title, second.parent) == (None, "The first program", first.number)
    assert [span.path for span in summary.spans if span.path.startswith(("compiled", "step"))] == ["compiled", "step-1", "step-1/attempt-1"]
    assert "next-step" not in models.requests[0].messages[-1].content.split("Allowed routes")[-1][:200], "every step of the plan is written"


async def test_a_models_plan_does_not_take_groups_from_the_compiler():
    models, summary = await run(
        {"planner/plan": [plan("s1", "s2")], "verifier/diagnose": [diagnosis("stop")]},
        planner="scripted",
    )
    assert models.purposes == ["planner/plan", "verifier/diagnose"] and len(summary.candidates) == 1
    assert summary.candidate(1).title == "The first program"


async def test_without_the_setting_nothing_differs():
    models, summary = await run({"coder/first": [program(1.5)], "verifier/diagnose": [diagnosis("stop")]}, first_program="coder")
    assert models.purposes == ["coder/first", "verifier/diagnose"] and summary.candidate(1).title != "The first program"


async def test_an_interrupted_run_does_not_write_the_first_program_twice():
    script = {"verifier/diagnose": [optimise, diagnosis("stop")], "coder/optimise": [program(1.9, tag="wide")]}
    journal, models = MemoryJournal(), ScriptedModels(script)

    async def fail(request):
        if request.purpose == "coder/optimise":
            raise asyncio.CancelledError

    models.before = fail
    with pytest.raises(asyncio.CancelledError):
        await engine(models, journal).execute()
    again = ScriptedModels({"verifier/diagnose": [diagnosis("stop")], "coder/optimise": [program(1.9, tag="wide")]})
    summary = await engine(again, journal).execute()
    assert again.purposes == ["coder/optimise", "verifier/diagnose"] and [
        c.number for c in summary.candidates if c.strategy != "yield-to-baseline"
    ] == [1, 2]


async def test_nobody_is_asked_for_what_the_budget_of_programs_leaves_no_room_for():
    models, summary = await run(
        {"verifier/diagnose": [optimise], "coder/optimise": [program(1.9, tag="wide")]}, budget=Budget(candidates=2, calls=60)
    )
    assert models.purposes == ["verifier/diagnose", "coder/optimise"], "neither advice on the last program nor a further one"
    assert summary.outcome == "improved" and "budget" in summary.reason
