"""The payloads of events: the models read every existing trace without loss, and the reference, the pages and the writers agree with them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from agents import reference
from agents.events import KINDS, Event, NewEvent, Projection
from agents.journal import MemoryJournal
from agents.payloads import (
    PAYLOADS,
    CandidateProposed,
    DecisionMade,
    DiagnosisMade,
    EffectCompleted,
    IdeaProposed,
    MessageDelta,
    Origin,
    PlanEdited,
    PlanProposed,
    PlanStep,
    RunFinished,
    RunForked,
    RunStarted,
    TreeChanged,
    TreeNode,
    read,
)
from agents.replay import BESIDE
from agents.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = [json.loads(line) for path in sorted(ROOT.glob("examples/traces/*/trace.jsonl")) for line in path.read_bytes().splitlines()]
FOLDERS = (ROOT / "static/js/run/folders.js").read_text()
STATE = (ROOT / "static/js/run/state.js").read_text()
ENTRIES = (ROOT / "static/js/run/entries.js").read_text()
# The names by which page entries refer to a payload that they display.
SHOWN: dict[str, list[type[BaseModel]]] = {
    "payload": [RunStarted, RunFinished], "plan": [PlanEdited], "step": [PlanStep], "idea": [IdeaProposed], "diagnosis": [DiagnosisMade],
    "decision": [DecisionMade], "tree": [TreeChanged], "node": [TreeNode],
}  # fmt: skip
HELPERS = ("add", "event", "at")  # functions with which tests and benches create events from keyword arguments
TERMINAL = ast.parse((ROOT / "stitchwork/conversation.py").read_text())
JAVASCRIPT = {"length", "map", "filter", "sort", "find", "toFixed"}  # methods of JavaScript values


def test_the_examples_are_read_and_written_back_as_they_were():
    assert len({event["kind"] for event in EXAMPLES}) > 12
    for event in EXAMPLES:
        assert read(event["kind"], event["payload"]).written() == event["payload"]


def payloads_in_tests() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields (place, kind, payload) for every event literal in a test or a bench; computed values are `...`."""
    for path in sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/**/*.py")]):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(f'"{kind}"' in text for kind in KINDS) else ():
            for kind, payload in _spelled(node):
                yield f"{path.name}:{node.lineno}", kind, payload


def _spelled(node: ast.AST) -> Iterator[tuple[str, dict[str, Any]]]:
    """Recognises `Event(kind="note.added", payload={...})`, `add("note.added", text=...)` and `("note.added", {...})`."""
    parts = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
    named = {one.arg: one.value for one in node.keywords if one.arg} if isinstance(node, ast.Call) else {}
    kind = next((one.value for one in [named.get("kind"), *parts[:2]] if isinstance(one, ast.Constant) and one.value in PAYLOADS), None)
    if kind is None:
        return
    given = next((one for one in [named.get("payload"), *parts] if isinstance(one, ast.Dict)), None)
    if given is not None:
        yield kind, dict(_constants(given))
    elif isinstance(node, ast.Call) and "payload" not in named and ast.unparse(node.func) in HELPERS:
        yield kind, {name: ... for name in named if name not in ("span", "agent", "at")}


def _constants(payload: ast.Dict) -> Iterator[tuple[str, Any]]:
    for key, value in zip(payload.keys, payload.values, strict=True):
        if isinstance(key, ast.Constant):
            try:
                yield key.value, ast.literal_eval(value)
            except ValueError:
                yield key.value, ...


@pytest.mark.slow
def test_what_tests_spell_out_is_what_the_kinds_say():
    spelled = list(payloads_in_tests())
    assert len(spelled) > 150
    wrong = []
    for place, kind, payload in spelled:
        known = {said.name for said in reference.fields_of(PAYLOADS[kind])}
        wrong += [f"{place}: {kind} has no {name}" for name in payload if name not in known]
        try:
            read(kind, {name: value for name, value in payload.items() if value is not ...})
        except ValidationError as error:  # only computed values may be missing here
            wrong += [f"{place}: {one['loc']}" for one in error.errors() if one["type"] != "missing" or one["loc"][0] not in payload]
    meant = ("test_payloads.py", "test_journal.py", "test_live.py")  # in which unknown values are the point of the test
    assert [one for one in wrong if not one.startswith(meant)] == []


def test_what_nobody_knows_survives_and_what_is_missing_is_empty():
    said = {"route": "stop", "since": 4, "notes": {"deep": [1]}}
    event = Event(run="r", seq=1, at="2026-01-01T00:00:00+00:00", kind="decision.made", payload=said)
    decision = event.of(DecisionMade)
    assert decision is not None and decision.written() == said == event.payload
    assert (decision.reason, decision.expected, decision.of, event.of(RunStarted)) == ("", None, None, None)
    assert event.moved("other", {"route": "repair"}).body.written() == {"route": "repair"}, "no payload of before is kept"


def test_a_null_is_a_missing_value_and_a_wrong_one_is_an_error():
    plan = read("plan.proposed", {"summary": None, "steps": [{"id": "s", "operators": None, "expected": "1.3"}], "more": 0})
    assert isinstance(plan, PlanProposed) and plan.summary == "" and plan.steps[0].operators == [] and plan.steps[0].expected == "1.3"
    for wrong in ({}, {"candidate": "x"}, {"candidate": 1, "program": "x"}):
        with pytest.raises(ValueError):
            read("candidate.proposed", wrong)


def test_a_payload_is_written_with_what_its_author_gave():
    event = NewEvent.of(MessageDelta(message="plan#1", offset=3, text="x"), "plan", "coder")
    assert (event.kind, event.span, event.agent, event.payload) == ("message.delta", "plan", "coder", {"message": "plan#1", "offset": 3, "text": "x"})
    fork = RunForked(origin=Origin(run="a", seq=3), by="ada")
    assert fork.written() == {"from": {"run": "a", "seq": 3}, "by": "ada"}
    assert CandidateProposed(candidate=1).having(idea=2).written() == {"candidate": 1, "idea": 2}
    with pytest.raises(TypeError, match="candidate.proposed has no ideas"):
        CandidateProposed(candidate=1).having(ideas=2)


def test_numbers_stay_as_they_were_written():
    spent = read("llm.completed", {"key": "a#1", "spent": {"calls": 1, "dollars": 0.5}, "seconds": 2}).written()
    assert json.dumps(spent, sort_keys=True) == '{"key": "a#1", "seconds": 2, "spent": {"calls": 1, "dollars": 0.5}}'


@pytest.mark.asyncio
async def test_what_models_and_programs_may_say_reaches_the_journal():
    odd = "a\0b\ud83d!"
    said = [
        MessageDelta(message="plan#1", text=odd),
        EffectCompleted(key="plan#2", value=[{odd: odd}]),
        RunForked(changed={"x": odd}),
    ]
    written = await MemoryJournal().append([NewEvent.of(one) for one in said])
    assert written[0].payload["text"] == "a\ufffdb\ufffd!" and written[1].body.written()["value"] == [{"a\ufffdb\ufffd!": "a\ufffdb\ufffd!"}]
    with pytest.raises(ValueError):
        await MemoryJournal().append([NewEvent.of(EffectCompleted(key="plan#3", value=float("nan")))])


def test_a_run_starts_with_all_settings():
    assert set(Settings.model_fields) <= set(RunStarted.model_fields)


def test_kinds_stand_in_one_place():
    assert tuple(PAYLOADS) == KINDS and all(payload.kind == kind and payload.words for kind, payload in PAYLOADS.items())
    assert {"verification.finished", "message.delta", "run.forked"} <= BESIDE and not {"run.started", "candidate.proposed", "error"} & BESIDE


def test_a_projection_gives_each_function_the_payload_in_its_type():
    rows: Projection[list[str], Event] = Projection()

    @rows.on(PlanProposed)
    def planned(state: list[str], event: Event, p: PlanProposed) -> None:
        state.append(p.summary)

    found: list[str] = []
    for kind in ("plan.proposed", "error"):
        rows.take(found, Event(run="r", seq=1, at="", kind=kind, payload={"summary": "s"}))
    assert found == ["s"] and "plan.proposed" in rows and "error" not in rows


def test_the_reference_and_the_pages_types_are_made_from_the_models():
    stale = "make them anew: python -m agents.reference"
    assert reference.PAGE.read_text() == reference.page(reference.PAGE.read_text()), stale
    assert reference.SCRIPT.read_text() == reference.script(), stale


def parts_of(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Returns the names of a model's fields as a script reads them, each with the model that the field holds."""

    def inner(annotation: Any) -> type[BaseModel] | None:
        models = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, BaseModel)]
        return models[0] if models else None

    return {said.name: inner(said.type) for said in reference.fields_of(model)}


def unknown_reads(body: str, models: list[type[BaseModel]], variable: str = "payload") -> list[str]:
    """Returns the payload reads in a script that match no field of these models."""
    known: dict[str, type[BaseModel] | None] = {}
    for model in models:
        known |= parts_of(model)
    wrong = []
    for name, deeper in re.findall(rf"\b{variable}\??\.(\w+)(?:\??\.(\w+))?", body):
        part = known.get(name)
        if name not in known or (deeper and deeper not in JAVASCRIPT and part is not None and deeper not in parts_of(part)):
            wrong.append(f"{models[0].__name__}: {variable}.{name}{'.' * bool(deeper)}{deeper}")
    return wrong


def test_the_pages_folders_read_fields_that_there_are():
    bodies = re.findall(r'^  "?([\w.]+)"?\(state\b[^)]*\) \{\n(.*?)^  \},$', FOLDERS, re.MULTILINE | re.DOTALL)
    assert len(bodies) == len(KINDS) and {kind for kind, _ in bodies} == set(KINDS)
    assert [read for kind, body in bodies for read in unknown_reads(body, [PAYLOADS[kind]])] == []
    named = {payload.__name__: payload for payload in PAYLOADS.values()}
    shared = re.findall(r"^/\*\* @param \{(.*?)\} payload \*/\nexport function \w+\(.*?\) \{\n(.*?)^\}$", STATE, re.MULTILINE | re.DOTALL)
    assert len(shared) == len(re.findall(r"^export function \w+\(.*\bpayload\b", STATE, re.MULTILINE)) == 5
    for types, body in shared:
        assert unknown_reads(body, [named[name] for name in re.findall(r"\)\.(\w+)", types)]) == []
    assert unknown_reads("payload.summery + payload.steps.length", [PlanProposed]) == ["PlanProposed: payload.summery"]
    assert [read for variable, models in SHOWN.items() for read in unknown_reads(ENTRIES, models, variable)] == []


def test_the_command_line_reads_fields_that_there_are():
    """The command line imports nothing from the product, so it reads JSON."""
    methods = {node.name: node for node in ast.walk(TERMINAL) if isinstance(node, ast.FunctionDef)}
    table = next(node.value for node in TERMINAL.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "HANDLERS")
    assert isinstance(table, ast.Dict) and len(table.keys) > 15
    wrong = []
    for key, method in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Constant) and isinstance(method, ast.Attribute)
        known = parts_of(PAYLOADS[key.value])
        wrong += [f"{key.value}: {name}" for name in names_read(methods[method.attr]) if name not in known]
    assert wrong == []


def names_read(function: ast.FunctionDef) -> Iterator[str]:
    """Yields the keys that a function reads from its payload `p`."""
    for node in ast.walk(function):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "p":
            key = node.slice
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "p.get":
            key = node.args[0]
        if isinstance(key, ast.Constant):
            yield key.value
