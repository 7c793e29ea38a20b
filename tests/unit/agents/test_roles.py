"""The built-in Planner, Coder and Verifier with the real compiler and a fake verifier."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import pytest_asyncio
import torch
from agent_fakes import FakeClient, report, settings
from scripted_models import ScriptedModels, diagnosis

from agents.events import MAX_PAYLOAD_BYTES
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.plan_edits import first_options
from agents.roles import verifier
from agents.roles.casting import roles_for
from agents.roles.coder import LEAVE, BuiltInCoder
from agents.roles.situation import Advice, Attempt, Edit, Situation
from agents.settings import Budget, Settings
from compiler import Move, Options
from tests.engines import engine_of
from verifier.jobs import VerifyJob
from verifier.parties.capturing.capture import capture
from verifier.program import Program

TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.softmax(self.linear(self.norm(x).relu()), dim=-1)


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return [256]
"""


@pytest.fixture(scope="module")
def captured():
    names: dict = {}
    exec(compile(TASK, "task.py", "exec"), names)  # a task written by this test
    return capture(names["Model"](256), [torch.rand(64, 256)], TASK, "train")


@pytest_asyncio.fixture
async def planned(captured):
    journal = MemoryJournal()
    run = engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), settings(), TASK, "mine")
    situation = Situation(TASK, "mine", settings(), capture=captured)
    roles = roles_for(Settings())
    span = run.span("plan", "Plan")
    situation.plan = await roles.planner.plan(span, situation)
    return roles, span, situation


def judged(situation: Situation, edit, status: str, ratio: float = 1.0, message: str = "", parent: int | None = None) -> Attempt:
    attempt = Attempt(len(situation.attempts) + 1, parent, edit)
    attempt.report = report(VerifyJob(task_source=TASK, program_source=edit.source), status, ratio, message)
    situation.attempts.append(attempt)
    return attempt


@pytest.mark.asyncio
async def test_the_plan_says_what_goes_where(planned):
    _, _, situation = planned
    payload = situation.plan.payload
    spaces = [step["space"] for step in payload["steps"]]
    assert "own kernel" in spaces and "library" in spaces and payload["more"] == 0
    assert len(json.dumps(payload)) < MAX_PAYLOAD_BYTES and payload["floor_ms"] > 0
    text = "".join(situation.plan.says)
    assert "floor" in text and "bound" in text and all(step["id"] in text for step in payload["steps"])


@pytest.mark.asyncio
async def test_the_first_program_and_repairs_until_all_is_left_to_pytorch(planned):
    roles, span, situation = planned
    edit = await roles.coder.write(span, situation, None, None)
    Program.read(edit.source)
    assert "stitch_build" in edit.source and "instead of" in "".join(edit.says)
    own = [group.id for group in situation.plan.data.own_groups]
    named = own[-1]
    left: list[str] = []
    while edit is not None:
        attempt = judged(situation, edit, "build_failed", message=f"error in {named}_kernel" if not left else "")
        advice = await roles.verifier.advise(span, situation, attempt)
        assert advice.route == "repair" and advice.diagnosis.bottleneck == "defect"
        edit = await roles.coder.write(span, situation, attempt, advice)
        if edit is not None:
            Program.read(edit.source)
            now = [group for group in own if edit.options.on(LEAVE, group)]
            assert len(now) > len(left) and (left or now == [named])
            left = now
    assert left == own and len(situation.attempts) <= 5


@pytest.mark.asyncio
async def test_moves_pass_the_catalogue_and_start_from_the_best(planned, monkeypatch):
    roles, span, situation = planned
    edit = await roles.coder.write(span, situation, None, None)
    first = judged(situation, edit, "passed", 1.5)

    def move(strategy: str, knob: int) -> Move:
        options = Options(knobs={"x": knob})
        return Move(strategy=strategy, group="g1", options=options, expectation="faster", expected_speedup=1.2, why="because")

    offered = [move("cuda-graph", 1), move("made-up", 2), move("block-size", 3), move("row-cache", 4)]
    monkeypatch.setattr(verifier, "moves", lambda plan, options, report, profile, source: offered)
    advice = await roles.verifier.advise(span, situation, first)
    assert (advice.route, advice.method, advice.expected) == ("optimise", "block-size", 1.2)
    second = await roles.coder.write(span, situation, first, advice)
    assert second.options == offered[2].options and second.strategy == "block-size"
    slower = judged(situation, second, "passed", 1.1, parent=1)
    advice = await roles.verifier.advise(span, situation, slower)
    assert advice.method == "row-cache" and "candidate 1" in advice.reason and "candidate 2 is not better" in advice.reason
    wrong = judged(situation, await roles.coder.write(span, situation, first, advice), "wrong_result", parent=1)
    advice = await roles.verifier.advise(span, situation, wrong)
    assert advice.route == "stop" and "cuda only" in advice.reason and "not in the catalogue" in advice.reason


@pytest.mark.asyncio
async def test_a_model_as_the_judge_of_the_compiler_chooses_among_its_moves(planned, monkeypatch):
    _, _, situation = planned
    models = ScriptedModels({"verifier/diagnose": [diagnosis("optimise", "fuse-pointwise")], "verifier/reply": [diagnosis("optimise", "row-cache")]})
    chosen = settings(judge="scripted", budget=Budget(calls=3))
    journal = MemoryJournal()
    run = engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), chosen, TASK, "mine", models=models)
    roles, span = roles_for(chosen, models), run.span("all", "All")
    broken = judged(situation, await roles.coder.write(span, situation, None, None), "build_failed")
    assert (await roles.verifier.advise(span, situation, broken)).route == "repair" and not models.requests, "repaired without a judgement"
    first = judged(situation, await roles.coder.write(span, situation, None, None), "passed", 1.5)

    def move(strategy: str, knob: int) -> Move:
        return Move(strategy=strategy, group="g1", options=Options(knobs={"x": knob}), expectation="faster", expected_speedup=1.2, why="because")

    monkeypatch.setattr(verifier, "moves", lambda plan, options, report, profile, source: [move("block-size", 3), move("row-cache", 4)])
    advice = await roles.verifier.advise(span, situation, first)
    assert models.purposes == ["verifier/diagnose", "verifier/reply"]
    assert "Allowed: block-size, row-cache" in models.requests[1].messages[-1].content.replace("row-cache, block-size", "block-size, row-cache")
    assert (advice.route, advice.method, advice.move.options.knobs) == ("optimise", "row-cache", {"x": 4})
    assert (await roles.coder.write(span, situation, first, advice)).options == advice.move.options
    models.script["verifier/diagnose"] = [diagnosis("optimise", "block-size")]
    assert (await roles.verifier.advise(span, situation, first)).method == "block-size"
    without = await roles.verifier.advise(span, situation, first)
    assert without.route == "optimise" and "budget" in without.reason, "with no calls left the rules decide, and the compiler goes on"


@pytest.mark.asyncio
async def test_what_a_model_wrote_before_a_fork_is_no_trouble_for_the_compiler(planned):
    roles, span, situation = planned
    foreign = judged(situation, Edit("# a model's program", "by a model", "", ()), "passed", 1.5)
    advice = await roles.verifier.advise(span, situation, foreign)
    assert advice.route == "stop" and "not the compiler's" in advice.reason
    edit = await roles.coder.write(span, situation, foreign, advice)
    assert edit.options == Options(), "the compiler's first program"


@pytest.mark.asyncio
async def test_a_graph_that_could_not_be_captured_leaves_the_model_as_it_is(captured):
    journal = MemoryJournal()
    run = engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), settings(), TASK, "mine")
    broken = captured.model_copy(update={"graph": None, "reason": "data-dependent control flow"})
    situation = Situation(TASK, "mine", settings(), capture=broken)
    roles, span = roles_for(Settings()), run.span("plan", "Plan")
    situation.plan = await roles.planner.plan(span, situation)
    assert "data-dependent control flow" in "".join(situation.plan.says).lower()
    edit = await roles.coder.write(span, situation, None, Advice(None, "", ""))
    Program.read(edit.source)
    assert "could not be captured (data-dependent control flow)" in edit.changes and "fuse" not in edit.changes


@pytest.mark.asyncio
async def test_the_coder_follows_a_plan_that_a_person_edited(planned):
    _, span, situation = planned
    payload = situation.plan.payload
    compiled = situation.plan.data
    assert first_options(compiled, payload) == Options(), "as it was proposed it is the compiler's own"
    own = next(group for group in compiled.plan.groups if group.space == "own kernel")
    given = [{**step, "space": "pytorch"} if step["id"] == own.id else step for step in payload["steps"]]
    assert first_options(compiled, {**payload, "steps": given}).on(LEAVE, own.id)
    assert first_options(compiled, {**payload, "steps": [step for step in payload["steps"] if step["id"] != own.id]}).on(LEAVE, own.id)
    more = [{**step, "strategies": [*step["strategies"], "parallel-split"]} if step["id"] == own.id else step for step in payload["steps"]]
    assert first_options(compiled, {**payload, "steps": more}).on("parallel-split", own.id)
    before = (await BuiltInCoder().write(span, situation, None, None)).source
    situation.plan = replace(situation.plan, payload={**payload, "steps": given})
    assert (await BuiltInCoder().write(span, situation, None, None)).source != before
