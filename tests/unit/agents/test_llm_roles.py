"""Roles that query a model, in the stitch workflow with a fake verifier: every route, every refusal, and unusable replies."""

from __future__ import annotations

import pytest
from agent_fakes import TASK, FakeClient, settings
from scripted_models import ScriptedModels, diagnosis, judgement, offered, optimise, plan, program

from agents.events import NewEvent
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.ports import Passage
from agents.roles.casting import impossible
from agents.run import Engine
from agents.settings import Budget
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio
ALL = {"planner": "scripted", "coder": "scripted", "judge": "scripted"}


def engine(models: ScriptedModels, journal=None, client=None, library=None, **changes) -> Engine:
    journal = journal if journal is not None else MemoryJournal()
    chosen = settings(**{**ALL, "budget": Budget(candidates=20, calls=60), **changes})
    verifier = LocalVerifier(journal, client or FakeClient(), "cpu")
    return engine_of(journal, verifier, chosen, TASK, "softmax", models=models, library=library)


async def run(script: dict, **changes):
    models = ScriptedModels(script)
    summary = await engine(models, **changes).execute()
    return models, summary


def user(request) -> str:
    return request.messages[-1].content


async def test_plan_steps_repair_method_and_stop():
    models, summary = await run(
        {
            "planner/plan": [plan("s1", "s2")],
            "coder/first": [program(status="build_failed", message="expected ';' before '}' token")],
            "coder/repair": [program(1.2, tag="repaired")],
            "verifier/diagnose": [diagnosis("next-step"), optimise, diagnosis("stop")],
            "coder/step": [program(1.4, tag="second")],
            "coder/optimise": [program(1.9, tag="wide")],
        }
    )
    assert models.purposes == [
        "planner/plan", "coder/first", "coder/repair", "verifier/diagnose", "coder/step", "verifier/diagnose", "coder/optimise", "verifier/diagnose",
    ]  # fmt: skip
    assert (summary.outcome, summary.best) == ("improved", 4), summary.reason
    assert [c.parent for c in summary.candidates] == [None, 1, 2, 3] and [c.step for c in summary.candidates] == ["s1", "s1", "s2", "s2"]
    method = offered(models.requests[5])[0]
    assert summary.candidate(4).strategy == method
    repair = user(models.of("coder/repair")[0])
    assert repair.startswith("Situation: coder/repair") and "expected ';'" in repair and "build_failed" in repair and "## Program" in repair
    assert "do s2" in user(models.of("coder/step")[0]) and "1.20x over eager" in user(models.of("coder/step")[0])
    wide = user(models.of("coder/optimise")[0])
    assert f"`{method}`" in wide and "wider loads" in wide and "## How to" in wide
    assert "Memory sets the pace" in summary.candidate(3).diagnosis.text
    assert user(models.of("planner/plan")[0]).count("class Model(") == 1, "the reference is sent once"
    paths = [span.path for span in summary.spans if span.path.startswith("step-")]
    assert paths == ["step-1", "step-1/attempt-1", "step-1/attempt-2", "step-2", "step-2/attempt-1", "step-3", "step-3/attempt-1"]


async def test_a_reply_that_does_not_parse_is_asked_again_with_the_error():
    models, summary = await run(
        {
            "planner/plan": ["No JSON today."],
            "planner/reply": ['{"summary": "x", "steps": [{"id": "s1"}]}', plan("s1")],
            "coder/first": [program(2.0)],
            "verifier/diagnose": [diagnosis("optimise", "magic")],
            "verifier/reply": [diagnosis("stop")],
        }
    )
    assert models.purposes == ["planner/plan", "planner/reply", "planner/reply", "coder/first", "verifier/diagnose", "verifier/reply"]
    first, second = models.of("planner/reply")
    assert [m.role for m in first.messages] == ["system", "user", "assistant", "user"] and first.messages[2].content == "No JSON today."
    assert "Asked: planner/plan" in user(first) and "no JSON object" in user(first)
    assert "steps[0].title" in user(second) and "attempt counts as failed" in user(second)
    assert "'magic', which is not allowed now" in user(models.of("verifier/reply")[0])
    assert summary.outcome == "improved"


async def test_a_plan_that_never_parses_is_the_compilers():
    models, summary = await run(
        {"planner/plan": ["no"], "planner/reply": ["no"], "coder/first": [program(2.0)], "verifier/diagnose": [diagnosis("stop")]}
    )
    assert models.purposes[:3] == ["planner/plan", "planner/reply", "planner/reply"]
    assert summary.plan.summary == "one step: the whole forward pass" and summary.outcome == "improved"


async def test_replies_without_a_program_are_failed_attempts_and_the_next_prompt_says_why():
    models, summary = await run(
        {
            "planner/plan": [plan("s1")],
            "coder/first": ["Sorry.", "```python\nclass Fast:\n    pass\n```", program(1.5)],
            "coder/reply": ["Sorry again.", "And again.", "```python\nx = = 1\nclass ModelNew: pass\n```", "no"],
            "verifier/diagnose": [diagnosis("stop")],
        }
    )
    assert models.purposes == ["planner/plan", *(["coder/first", "coder/reply", "coder/reply"] * 2), "coder/first", "verifier/diagnose"]
    assert "Replies that could not be used" not in user(models.of("coder/first")[0])
    assert "neither a python fence" in user(models.of("coder/first")[1])
    assert "not Python" in user(models.of("coder/reply")[3])
    assert summary.outcome == "improved" and [c.number for c in summary.candidates] == [1]
    assert len([e for e in summary.errors if "no usable program" in e]) == 2


async def test_a_model_that_never_writes_a_program_ends_with_that_reason():
    models, summary = await run({"planner/plan": [plan("s1")], "planner/replan": [plan("t1")], "coder/first": ["no"], "coder/reply": ["no"]})
    assert summary.outcome == "failed" and "repairs in a row did not help" in summary.reason
    assert models.purposes.count("planner/replan") == 2, "two new plans, not more"
    assert models.purposes.count("coder/first") == 4 + 4 + 6


async def test_the_same_program_again_is_not_verified():
    client = FakeClient()
    broken = program(status="wrong_result", message="off by one")
    models, summary = await run(
        {
            "planner/plan": [plan("s1")],
            "coder/first": [broken],
            "verifier/judge": [judgement()],
            "coder/repair": [broken],
            "coder/reply": [program(1.5)],
            "verifier/diagnose": [diagnosis("stop")],
        },
        client=client,
    )
    assert "nothing in it has changed" in user(models.of("coder/reply")[0])
    assert client.calls.count("verify") == 3 and summary.outcome == "improved", "two in the search, one to confirm"
    judge = user(models.of("verifier/judge")[0])
    assert "off by one" in judge and "Routes that are open now: repair, re-plan, stop" in judge
    assert "The tail is read beyond the end" in user(models.of("coder/repair")[0])


async def test_a_trained_policy_signs_its_programs_and_others_do_not():
    policy = "/models/coder@3f2a1c9d04be-40"
    edit = "<<<<<<< SEARCH\n# speed 1.2\n=======\n# speed 2.5\n>>>>>>> REPLACE\n"
    script = {
        "planner/plan": [plan("s1")],
        "coder/first": [program(1.2)],
        "verifier/diagnose": [optimise, diagnosis("stop")],
        "coder/optimise": [program(1.2)],  # identical except for the first line
        "coder/reply": [edit],
    }
    first = f"# Written by scripted ({policy})\n"
    for model, line in ((policy, first), ("scripted-1", "")):
        journal = MemoryJournal()
        models = ScriptedModels({purpose: list(replies) for purpose, replies in script.items()}, model=model)
        summary = await engine(models, journal).execute()
        assert (summary.best, len(models.of("coder/reply"))) == (2, 1), summary.reason
        proposed = [event.payload for event in await journal.load() if event.kind == "candidate.proposed"]
        assert [one["author"] for one in proposed] == [f"scripted ({model})"] * 2
        sources = [(await journal.get(row.program.sha)).decode() for row in summary.candidates]
        assert all(source.startswith(line) and source.count("# Written by") == bool(line) for source in sources)


async def test_search_and_replace_on_the_program():
    edit = "TITLE: faster\n<<<<<<< SEARCH\n# speed 1.2\n=======\n# speed 2.5\n>>>>>>> REPLACE\n"
    models, summary = await run(
        {
            "planner/plan": [plan("s1")],
            "coder/first": [program(1.2)],
            "verifier/diagnose": [optimise, diagnosis("stop")],
            "coder/optimise": [edit.replace("1.2", "1.3")],
            "coder/reply": [edit],
        }
    )
    assert "Block 1" in user(models.of("coder/reply")[0]) and "0 matches" in user(models.of("coder/reply")[0])
    assert summary.best == 2 and summary.speedup.ratio == pytest.approx(2.5)


async def test_a_diagnosis_that_cannot_be_used_leaves_it_to_the_rules():
    models, summary = await run(
        {
            "planner/plan": [plan("s1", "s2")],
            "coder/first": [program(1.2)],
            "verifier/diagnose": ["no", diagnosis("stop")],
            "verifier/reply": ["no"],
            "coder/step": [program(1.6, tag="2")],
        }
    )
    assert models.purposes[2:5] == ["verifier/diagnose", "verifier/reply", "verifier/reply"]
    assert summary.decisions[0].made.route == "next-step" and "without the model's diagnosis" in summary.decisions[0].made.reason
    assert summary.best == 2


async def test_new_plans_after_repairs_that_do_not_help_and_at_a_plateau():
    counter = iter(range(100))

    def wrong(_):
        return program(status="wrong_result", message="all zeros", tag=str(next(counter)))

    models, summary = await run(
        {
            "planner/plan": [plan("s1")],
            "planner/replan": [plan("t1"), plan("u1")],
            "coder/first": [wrong, program(1.5, tag="good")],
            "coder/repair": [wrong],
            "coder/step": [program(1.5, tag="flat")],
            "verifier/judge": [judgement()],
            "verifier/diagnose": [optimise, optimise, diagnosis("re-plan"), diagnosis("stop")],
            "coder/optimise": [lambda _: program(1.5, tag=str(next(counter)))],
        }
    )
    replans = models.of("planner/replan")
    assert len(replans) == 2
    assert "3 repairs in a row did not help" in user(replans[0]) and "all zeros" in user(replans[0]) and "## Best program" not in user(replans[0])
    assert "## Best program so far" in user(replans[1]) and "Situation: planner/replan" in user(replans[1])
    assert summary.outcome == "improved" and "Routes that are open now: optimise, re-plan, stop" in user(models.of("verifier/diagnose")[0])
    assert [span.path for span in summary.spans if "plan" in span.path] == ["plan", "re-plan-1", "re-plan-2"]


async def test_a_method_that_breaks_the_program_is_given_up_for_another():
    counter = iter(range(100))
    models, summary = await run(
        {
            "planner/plan": [plan("s1")],
            "coder/first": [program(1.5)],
            "verifier/diagnose": [optimise, diagnosis("stop")],
            "coder/optimise": [program(status="crashed", message="SIGSEGV", tag="a"), program(1.8, tag="other")],
            "coder/repair": [lambda _: program(status="crashed", message="SIGSEGV", tag=str(next(counter)))],
            "verifier/judge": [judgement()],
        },
        planner="built-in",
    )
    assert models.purposes.count("coder/repair") == 3 and models.purposes.count("coder/optimise") == 2
    second = user(models.of("coder/optimise")[1])
    failed = summary.candidate(2).strategy
    assert failed and f"`{failed}`" not in second.partition("## Method")[2].partition("##")[0], "not the method that failed"
    assert summary.best == 6 and "crashed" in second, "earlier errors are told"


async def test_what_could_not_be_measured_is_not_repaired():
    busy = {"status": "inconclusive", "message": "the machine is too busy"}
    script = {
        "planner/plan": [plan("s1")],
        "coder/first": [program(**busy)],
        "verifier/diagnose": [optimise, diagnosis("stop")],
        "coder/optimise": [program(**busy, tag="2"), program(1.9, tag="3")],
    }
    client = FakeClient()

    async def quieter(job):
        if job.kind == "verify" and client.calls.count("verify") == 3:
            client.quiet = True
        if job.kind == "verify" and getattr(client, "quiet", False) and "TAG = '2'" not in job.program_source:
            job.program_source = job.program_source.replace("# status inconclusive", "# status passed")

    client.before = quieter
    models, summary = await run(script, client=client)
    assert models.purposes == ["planner/plan", "coder/first", "verifier/diagnose", "coder/optimise", "coder/optimise", "verifier/diagnose"]
    assert [c.title for c in summary.candidates][:2] == ["A program", "The same program once more"]
    assert [c.parent for c in summary.candidates] == [None, 1, 2, 2] and summary.best == 4


async def test_planner_built_in_and_rules_for_the_verifier():
    models, summary = await run(
        {"coder/first": [program(1.5)], "coder/optimise": [lambda request: program(1.5, tag=str(len(request.messages[-1].content)))]},
        planner="built-in",
        judge="built-in",
    )
    assert models.purposes[0] == "coder/first" and set(models.purposes[1:]) <= {"coder/optimise", "coder/reply"}
    assert summary.outcome == "improved" and summary.state == "finished"
    assert {c.strategy for c in summary.candidates[1:]} and all(c.strategy for c in summary.candidates[1:])


async def test_frontend_and_mid_end():
    models, summary = await run(
        {
            "planner/plan": [plan("s1", "s2")],
            "frontend/translate": [program(status="build_failed", message="no such header")],
            "frontend/repair": [program(1.1, tag="right")],
            "verifier/diagnose": [optimise, diagnosis("stop")],
            "midend/tune": [program(status="wrong_result", message="tail", tag="tuned")],
            "verifier/judge": [judgement()],
            "midend/repair": [program(1.7, tag="tuned right")],
        },
        coder_mode="frontend+mid-end",
    )
    assert [p for p in models.purposes if "/" in p and not p.startswith(("planner", "verifier"))] == [
        "frontend/translate", "frontend/repair", "midend/tune", "midend/repair",
    ]  # fmt: skip
    translate = user(models.of("frontend/translate")[0])
    assert "do s1" in translate and "do s2" in translate, "the whole plan at once"
    assert "## Compiler and hardware" in user(models.of("midend/tune")[0])
    assert "optimise, re-plan, stop" in user(models.of("verifier/diagnose")[0]), "there is no next step"
    assert summary.best == 4 and summary.started.coder_mode == "frontend+mid-end"


async def test_notes_of_people_reach_the_next_prompt_of_the_role_once():
    journal = MemoryJournal()
    models = ScriptedModels(
        {
            "planner/plan": [plan("s1")],
            "coder/first": [program(1.2)],
            "verifier/diagnose": [optimise, diagnosis("stop")],
            "coder/optimise": [program(1.5, tag="2")],
        }
    )

    async def note(request):
        if request.purpose == "planner/plan":
            payload = {"to": "coder", "text": "Leave the softmax in one kernel.", "by": "ada"}
            await journal.append([NewEvent(kind="note.added", agent="person", payload=payload)])

    models.before = note
    summary = await engine(models, journal=journal).execute()
    first, later = user(models.of("coder/first")[0]), user(models.of("coder/optimise")[0])
    assert "## Notes from people" in first and "ada: Leave the softmax in one kernel." in first
    assert "Notes from people" not in later and "Notes from people" not in user(models.of("verifier/diagnose")[0])
    assert summary.outcome == "improved"


class Shelf:
    def __init__(self):
        self.asked: list[str] = []

    async def search(self, query: str, count: int) -> list[Passage]:
        self.asked.append(query)
        return [Passage("guide#3", "Guide: wide loads", "Use float4."), Passage("guide#4", "Guide: other", "Else.")][:count]


async def test_documents_are_cited_by_the_diagnosis_that_used_them():
    shelf, journal = Shelf(), MemoryJournal()
    models = ScriptedModels(
        {
            "planner/plan": [plan("s1")],
            "coder/first": [program(1.2)],
            "verifier/diagnose": [lambda r: diagnosis("optimise", offered(r)[0], ["guide#9"])],
            "verifier/reply": [lambda r: diagnosis("optimise", offered(r)[0], ["guide#3"]), diagnosis("stop")],
            "coder/optimise": [program(1.5, tag="2")],
        }
    )
    await engine(models, journal=journal, library=shelf).execute()
    assert "[guide#3] Guide: wide loads\nUse float4." in user(models.of("verifier/diagnose")[0])
    assert "guide#9 is not among the passages (guide#3, guide#4)" in user(models.of("verifier/reply")[0])
    made = [e for e in journal.events if e.kind == "diagnosis.made"]
    assert made[0].payload["documents"] == [{"id": "guide#3", "title": "Guide: wide loads"}] and shelf.asked


async def test_roles_that_cannot_work_together_say_so():
    models = ScriptedModels({})
    assert "no LLM profile 'other'" in impossible(settings(coder="other"), models)
    assert "name a profile as the coder too" in impossible(settings(planner="scripted"), models)
    assert impossible(settings(language="triton", device="cuda"), models) is None
    assert "need a GPU" in impossible(settings(language="triton"), models)
    assert "need a GPU" in impossible(settings(coder="scripted", language="triton"), models)
    assert "C++ is for the CPU" in impossible(settings(coder="scripted", language="cpp", device="cuda:0"), models)
    assert impossible(settings(coder="scripted", language="triton", device="cuda"), models) is None and impossible(settings()) is None
    summary = await engine(models, planner="scripted", coder="built-in", judge="built-in").execute()
    assert summary.outcome == "failed" and "name a profile as the coder too" in summary.reason


async def test_a_budget_of_calls_ends_the_search_and_keeps_what_was_found():
    models, summary = await run(
        {
            "planner/plan": [plan("s1")],
            "coder/first": [program(1.5)],
            "verifier/diagnose": [optimise],
            "coder/optimise": ["no"],
            "coder/reply": ["no"],
        },
        budget=Budget(candidates=20, calls=5),
    )
    assert len(models.requests) == 5 and summary.outcome == "improved" and "model calls" in summary.reason


def said(events) -> list:
    left_out = ("verification.queued", "verification.stage", "budget.updated", "run.resumed", "llm.requested")
    return [(e.kind, e.span, e.agent, {k: v for k, v in e.payload.items() if k not in ("seconds", "of")}) for e in events if e.kind not in left_out]


async def test_interrupted_anywhere_it_asks_no_completed_question_again():
    script = {
        "planner/plan": ["no"],
        "planner/reply": [plan("s1", "s2")],
        "coder/first": [program(status="wrong_result", message="tail")],
        "verifier/judge": [judgement()],
        "coder/repair": [program(1.2, tag="2")],
        "verifier/diagnose": [diagnosis("next-step"), optimise, diagnosis("stop")],
        "coder/step": [program(1.4, tag="3")],
        "coder/optimise": [program(1.9, tag="4")],
    }
    whole, models = MemoryJournal(), ScriptedModels(script)
    await engine(models, journal=whole).execute()
    wanted, asked = said(whole.events), len(models.requests)
    for cut in range(1, len(whole.events), 7):
        kept = whole.events[:cut]
        done = [e.payload["purpose"] for e in kept if e.kind == "llm.completed"]
        left = {purpose: answers[min(done.count(purpose), len(answers) - 1) :] for purpose, answers in script.items()}
        journal, again = MemoryJournal(whole.run, kept, whole.artefacts), ScriptedModels(left)
        summary = await engine(again, journal=journal).execute()
        assert len(again.requests) == asked - len(done), cut
        assert summary.best == 4 and said(journal.events) == wanted, cut


async def test_prompts_hold_no_machine_path_and_fit():
    models, _ = await run(
        {"planner/plan": [plan("s1")], "coder/first": [program(1.5)], "verifier/diagnose": [diagnosis("stop")]}, language="triton", device="cuda"
    )
    for request in models.requests:
        text = "\n".join(m.content for m in request.messages)
        assert "/work" not in text and "/home" not in text and len(text) < 40_000
    assert "Target language: triton" in user(models.of("coder/first")[0]) and "@triton.jit" in models.of("coder/first")[0].messages[0].content
