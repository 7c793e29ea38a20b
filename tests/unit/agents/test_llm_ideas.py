"""Ideas from a model: inventing, realising, crossing and aligning them, with a fake verifier; and the treatment of unusable replies."""

from __future__ import annotations

import json

import pytest
from agent_fakes import TASK, FakeClient, settings
from scripted_models import ScriptedModels, optimise, plan, program

from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.roles.casting import roles_for
from agents.roles.situation import Attempt, Edit, Idea, Situation
from agents.settings import Budget
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio
FIRST = Idea("Rows in registers", "One warp a row.", ("row-cache",), 1.5, number=1)
SECOND = Idea("Wide loads", "Four at once.", ("vectorise",), 1.3, number=2)


def idea(title: str, **more) -> dict:
    return {"title": title, "text": f"How to do {title}.", "strategies": ["row-cache"], "expected": 1.4, **more}


async def prepared(script: dict):
    models = ScriptedModels({"planner/plan": [plan("s1")], **script})
    journal = MemoryJournal()
    chosen = settings(planner="scripted", coder="scripted", judge="scripted", budget=Budget(calls=40))
    run = engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), chosen, TASK, "softmax", models=models)
    situation = Situation(TASK, "softmax", chosen)
    span = run.span("all", "All")
    situation.capture = (await span.capture()).result.capture
    roles = roles_for(chosen, models)
    situation.plan = await roles.planner.plan(span, situation)
    return models, situation, span, roles


def last(models) -> str:
    return models.requests[-1].messages[-1].content


async def test_ideas_differ_from_those_known_and_are_at_most_as_many_as_asked():
    found = json.dumps({"ideas": [idea("Wide loads"), idea("Split rows"), idea("One kernel"), idea("Two kernels")]})
    models, situation, span, roles = await prepared({"planner/ideas": [found]})
    ideas = await roles.planner.ideas(span, situation, 2, [FIRST, SECOND])
    assert [i.title for i in ideas] == ["Split rows", "One kernel"] and ideas[0].strategies == ("row-cache",) and ideas[0].expected == 1.4
    assert "1. Rows in registers" in last(models) and "At most 2 ideas" in last(models)


async def test_no_idea_that_can_be_used_is_no_idea():
    models, situation, span, roles = await prepared(
        {"planner/ideas": [json.dumps({"ideas": [idea("x", strategies=["magic"])]})], "planner/reply": ["?"]}
    )
    assert await roles.planner.ideas(span, situation, 3, []) == []
    assert "not in the catalogue: magic" in models.of("planner/reply")[0].messages[-1].content


async def test_crossover_and_its_way_out():
    models, situation, span, roles = await prepared({"planner/cross": [json.dumps(idea("Both"))]})
    situation.attempts.append(Attempt(1, None, Edit("", "", "", (), idea=FIRST)))
    child = await roles.planner.cross(span, situation, FIRST, SECOND)
    assert (child.title, child.parents) == ("Both", (1, 2))
    assert "## First idea\n\nRows in registers\nOne warp a row." in last(models) and "## Second idea\n\nWide loads" in last(models)
    models, situation, span, roles = await prepared({"planner/cross": ["no"], "planner/reply": ["no"]})
    joined = await roles.planner.cross(span, situation, FIRST, SECOND)
    assert joined.parents == (1, 2) and joined.strategies == ("row-cache", "vectorise") and "Four at once." in joined.text and joined.expected == 1.5


async def test_an_idea_becomes_a_program_and_is_aligned_with_it():
    models, situation, span, roles = await prepared(
        {
            "coder/realise": [program(1.7, title="Registers")],
            "planner/align": [json.dumps(idea("What it does", expected=1.7)), "no"],
            "planner/reply": ["no"],
        }
    )
    edit = await roles.coder.realise(span, situation, FIRST, None)
    assert edit.idea is FIRST and edit.strategy == "row-cache" and edit.title == "Registers"
    prompt = last(models)
    assert "## Idea\n\nRows in registers" in prompt and "## Program" not in prompt and "- row-cache:" in prompt
    attempt = Attempt(1, None, edit)
    situation.attempts.append(attempt)
    attempt.report = (await span.verify(edit.source, 1, "quick")).result.report
    aligned = await roles.planner.align(span, situation, FIRST, attempt)
    assert aligned.title == "What it does" and aligned.parents == (1,) and "1.70x over eager" in last(models)
    assert await roles.planner.align(span, situation, FIRST, attempt) is FIRST, "an idea that cannot be aligned stays as it was"


async def test_a_repair_keeps_the_idea():
    models, situation, span, roles = await prepared({"coder/realise": [program(status="crashed", message="boom")], "coder/repair": [program(1.2)]})
    edit = await roles.coder.realise(span, situation, FIRST, None)
    failed = Attempt(1, None, edit)
    situation.attempts.append(failed)
    failed.report = (await span.verify(edit.source, 1, "quick")).result.report
    advice = await roles.verifier.advise(span, situation, failed)
    assert advice.route == "repair", "a crash with its message needs no judgement"
    mended = await roles.coder.write(span, situation, failed, advice)
    assert mended.idea is FIRST and "## Step\n\nRows in registers" in last(models)


@pytest.mark.parametrize("workflow", ["branch", "pilot", "forge", "beam"])
async def test_whole_searches_with_models(workflow):
    counter = iter(range(1000))

    def tagged(_):
        number = next(counter)
        return program(1.0 + number / 50, tag=str(number), **({"status": "build_failed", "message": "no ;"} if number % 3 == 1 else {}))

    def ideas(_):
        return json.dumps({"ideas": [idea(f"idea {next(counter)}") for _ in range(4)]})

    def single(_):
        return json.dumps(idea(f"idea {next(counter)}"))

    judged = {"defect": "no ;", "why": "", "fix": "add it", "route": "repair", "documents": []}
    models = ScriptedModels(
        {
            "planner/plan": [plan("s1")], "planner/ideas": [ideas], "planner/cross": [single], "planner/align": [single],
            "coder/realise": [tagged], "coder/repair": [tagged], "coder/first": [tagged], "coder/optimise": [tagged], "coder/step": [tagged],
            "verifier/diagnose": [optimise], "verifier/judge": [json.dumps(judged)],
        }
    )  # fmt: skip
    journal = MemoryJournal()
    chosen = settings(workflow=workflow, planner="scripted", coder="scripted", judge="scripted", budget=Budget(candidates=14, calls=50))
    summary = await engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), chosen, TASK, "softmax", models=models).execute()
    assert summary.outcome == "improved", (summary.reason, summary.errors)
    wanted = {
        "beam": {"planner/ideas", "coder/first", "coder/realise", "coder/optimise", "coder/repair", "verifier/diagnose"},
        "branch": {"planner/ideas", "coder/realise", "coder/repair"},
        "pilot": {"planner/ideas", "coder/realise", "planner/align"},
        "forge": {"coder/first", "coder/optimise", "coder/repair", "verifier/diagnose", "verifier/judge"},
    }
    assert wanted[workflow] <= set(models.purposes)
