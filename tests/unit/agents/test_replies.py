"""Replies as JSON: found in prose and fences, checked strictly, and refused with the location of the error."""

from __future__ import annotations

import json

import pytest

from agents.llm.messages import Reply
from agents.roles.replies import DiagnosisReply, IdeasReply, PlanReply, UnusableReply, parse

STEP = {"id": "s1", "title": "fuse", "operators": ["softmax"], "space": "own kernel", "strategies": ["row-cache"], "contract": "as before",
        "expected": "2x", "risk": "none", "reason": "it is all"}  # fmt: skip
PLAN = {"summary": "one kernel", "steps": [STEP]}


def reply(text: str, **more) -> Reply:
    return Reply(text=text, **more)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(PLAN),
        f"```json\n{json.dumps(PLAN, indent=2)}\n```",
        f"Let me think about {{x}} and sets like {{1, 2}}.\n\n```\n{json.dumps(PLAN)}\n```\nThat should do.",
        f"Here is the plan: {json.dumps(PLAN)} Good luck.",
        f"An example:\n```json\n{json.dumps({'summary': 'no', 'steps': []})}\n```\nand the real one:\n```json\n{json.dumps(PLAN)}\n```",
    ],
    ids=["bare", "fence", "prose and fence", "prose", "the last of two"],
)
def test_json_is_found_wherever_it_stands(text):
    assert parse(reply(text), PlanReply).steps[0].space == "own kernel"


def test_a_line_end_within_a_string_is_read():
    assert parse(reply('{"ideas": [{"title": "a", "text": "two\nlines"}]}'), IdeasReply).ideas[0].text == "two\nlines"


def problem(text: str, schema, **more) -> str:
    with pytest.raises(UnusableReply) as caught:
        parse(reply(text, **more), schema)
    return str(caught.value)


def test_what_is_wrong_is_said_with_its_place():
    assert "empty" in problem("  \n", PlanReply)
    assert "no JSON object with the keys summary, steps" in problem("I would rather talk.", PlanReply)
    said = problem('{"summary": "x",\n "steps": [}', PlanReply)
    assert "line 2, column" in said and "near" in said
    assert "cut off" in problem('{"summary": "x", "steps": [', PlanReply, finish="length")


def test_schemas_are_strict():
    said = problem(json.dumps({**PLAN, "steps": [{**STEP, "space": "gpu", "speed": 3}]}), PlanReply)
    assert "steps[0].space" in said and "'own kernel', 'library' or 'pytorch'" in said and "steps[0].speed: this key does not exist here" in said
    assert "steps: two steps have the id s1" in problem(json.dumps({**PLAN, "steps": [STEP, STEP]}), PlanReply)
    assert "at least one has to change" in problem(json.dumps({**PLAN, "steps": [{**STEP, "space": "pytorch"}]}), PlanReply)
    assert "steps: " in problem(json.dumps({"summary": "x", "steps": []}), PlanReply)
    assert "route" in problem(json.dumps({"bottleneck": "x", "route": "give up"}), DiagnosisReply)
    assert "expected" in problem('{"bottleneck": "x", "route": "stop", "expected": NaN}', DiagnosisReply)


def test_a_gain_may_be_a_number():
    assert parse(reply(json.dumps({**PLAN, "steps": [{**STEP, "expected": 1.5}]})), PlanReply).steps[0].expected == "1.5x"
