"""K-Search's loop with learned beliefs: scripts, choice by rule, bounded repairs, scored predictions, and requests that a resumed run repeats
exactly."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from math import log
from random import Random

import pytest
from agent_fakes import TASK, FakeClient
from scripted_models import ScriptedModels, plan, program
from workflow_fakes import SearchRoles, engine

from agents.call_graph import call_graph
from agents.decisions.belief import Belief
from agents.decisions.tree import MOST_TRIES
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.memory.experience import Recalled
from agents.payloads import TreeChanged
from agents.settings import Budget, Settings
from agents.show import line, page
from agents.strategies.ledger import Record, entries
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio
WORKFLOW = sys.modules["agents.workflows.worldmodel"]


def trees(journal: MemoryJournal, what: str) -> list[TreeChanged]:
    return [p for event in journal.events if (p := event.of(TreeChanged)) is not None and p.what == what]


def node(tree: TreeChanged, name: str):
    return next(node for node in tree.nodes if node.id == name)


async def test_the_call_graph():
    run = engine("worldmodel", SearchRoles(faults=(0, 1, 0, 9, 2)), candidates=40)
    summary = await run.execute()
    graph = call_graph(run.journal.events)
    assert {(c.role, c.situation) for c in graph if c.role == "planner"} == {("planner", "plan"), ("planner", "edit")}
    assert len([c for c in graph if c.situation == "edit"]) < len([c for c in graph if c.situation == "realise"])
    told: set[str] = set()
    for call in graph:
        if call.situation == "edit":
            told |= set(call.made)
        if call.situation == "realise":
            assert call.parents[0] in told, "only what a script named is tried"
    attempts = [c for c in summary.candidates if c.span.startswith("attempt-")]
    chosen, learned = trees(run.journal, "chosen"), trees(run.journal, "learned")
    assert len(chosen) == len(learned) == len({c.span for c in attempts}) and len(attempts) > 10
    tries: dict[str, int] = {}
    for candidate, before, after in zip(attempts, chosen, learned, strict=True):
        tried = node(before, before.node)
        above = node(before, tried.parent)
        assert tried.state == "open" and above.state == "done", "a node waits until its parent has a program"
        assert candidate.parent == (above.candidate if not tried.tries else candidate.parent)
        tries[tried.id] = tries.get(tried.id, 0) + 1
        result = node(after, before.node) if candidate.status == "passed" or tries[tried.id] <= MOST_TRIES else None
        assert result.state == ("done" if candidate.status == "passed" else "given up" if tries[tried.id] == MOST_TRIES else "open")
    assert max(tries.values()) == MOST_TRIES, "a node that failed is tried again, and not for ever"
    judged = [c for c in graph if c.situation == "diagnose"]
    assert len(judged) == len(attempts), "every program has its diagnosis, and no model is asked for it"


async def test_the_rule_chooses_what_is_drawn_from_the_seed_alone():
    run = engine("worldmodel", SearchRoles(), candidates=16, seed=5)
    await run.execute()
    for number, tree in enumerate(trees(run.journal, "chosen")):
        done = {n.id for n in tree.nodes if n.state == "done"}
        ready = sorted((n for n in tree.nodes if n.state == "open" and n.parent in done), key=lambda n: int(n.id[1:]))
        draw, drawn = Random(f"5/worldmodel/{number}"), {}
        for one in ready:
            z = (log(one.belief.high) - log(one.belief.ratio)) / 1.2816
            deviation = max(z**2 - 0.02**2, 0.0) ** 0.5  # without the measurement noise
            drawn[one.id] = log(node(tree, one.parent).level or 1.0) + Belief(log(one.belief.ratio), deviation).drawn(draw)
        assert max(drawn.values()) - drawn[tree.node] < 2e-3, (number, drawn)  # figures in events are rounded
    other = engine("worldmodel", SearchRoles(), candidates=16, seed=6)
    await other.execute()
    assert [t.node for t in trees(other.journal, "chosen")] != [t.node for t in trees(run.journal, "chosen")]


async def test_beliefs_stand_before_and_after_each_attempt_and_predictions_are_scored():
    run = engine("worldmodel", SearchRoles(faults=(0, 1)), candidates=12)
    summary = await run.execute()
    learned = trees(run.journal, "learned")
    for tree, before in zip(learned, trees(run.journal, "chosen"), strict=False):  # the budget ends the last attempt before it has a program
        tried, earlier = node(tree, tree.node), node(before, before.node)
        assert tried.predicted == earlier.belief == tree.predicted
        passed = tried.state == "done"
        assert tree.came == pytest.approx((tried.gain or tried.level) if passed else 1.0, rel=1e-3)
        others = [n for n in tree.nodes if n.before is not None and n.id != tree.node]
        assert all(n.before == node(before, n.id).belief != n.belief for n in others)
    assert any(n.before is not None and n.id != t.node for t in learned for n in t.nodes), "what an attempt shows of a strategy, others learn"
    marks = learned[-1].marks
    assert marks.predictions == len(learned) and 0 <= marks.within <= marks.predictions and marks.off >= 1 and marks.promises_off >= 1
    told = page(summary)
    assert "tree of decisions, revision" in told and f"{marks.within} of {marks.predictions} gains fell into the interval" in told
    assert f"{summary.tree.node}*" in told and "believed" in told
    assert any("- n0" in (line(event) or "") for event in run.journal.events if event.kind == "tree.changed")


async def test_the_ledger_is_told_what_was_promised_not_what_was_believed():
    run = engine("worldmodel", SearchRoles(faults=(0, 1)), candidates=12)
    await run.execute()
    found = [entry for entry in entries(run.journal.events) if entry.expected is not None]
    assert len(found) > 6 and {entry.expected for entry in found} == {1.2}


async def test_what_earlier_runs_kept_is_where_beliefs_begin():
    class Earlier:
        async def recall(self, device_model, kernels, exclude):
            return Recalled(records={"vectorise": Record(tried=50, kept=0.0), "row-cache": Record(tried=50, kept=50.0)})

        async def learn(self, *given):
            pass

    run = engine("worldmodel", SearchRoles(), candidates=8)
    run.experience = Earlier()
    await run.execute()
    first = trees(run.journal, "edited")[0]
    beliefs = {tuple(n.strategies): n.belief.ratio for n in first.nodes if n.belief is not None}
    poor, good = [v for k, v in beliefs.items() if k == ("vectorise",)], [v for k, v in beliefs.items() if k == ("row-cache",)]
    assert all(value < 1.03 for value in poor) and all(value > 1.15 for value in good) and (poor or good), beliefs
    recalled = [e for e in run.journal.events if e.kind == "effect.completed" and e.payload["name"] == "experience"]
    assert len(recalled) == 1, "once a run, and a resumed one reads it in the trace"


# With models


def replied(revision: int, *ops: dict) -> str:
    return json.dumps({"revision": revision, "ops": list(ops)})


def add(title: str, parent: str = "n0", **more) -> dict:
    return {"op": "add", "parent": parent, "title": title, "text": f"How to do {title}.", "strategies": ["row-cache"], "expected": 1.3, **more}


def revision_of(request) -> int:
    return int(re.search(r"^Revision (\d+)\.", request.messages[1].content, re.MULTILINE)[1])


def script(request) -> str:
    """Returns three changes below the best program, named after the request."""
    text = request.messages[1].content
    best = re.search(r"^ *- (n\d+): .*\(the best program\)$", text, re.MULTILINE)
    revision = revision_of(request)
    titles = [f"{revision}.{n}" for n in range(3)]
    return replied(revision, *(add(title, best[1] if best else "n0") for title in titles))


def written(request) -> str:
    """Returns a program that depends on the request alone; every third program is wrong, and so is the first program for the second change of an
    edit."""
    text = request.messages[1].content
    mark = hashlib.sha256(text.encode()).hexdigest()
    number = int(mark[:6], 16)
    second = request.purpose == "coder/realise" and re.search(r"How to do \d+\.1\.", text)
    wrong = {"status": "wrong_result", "message": "values differ"} if second or number % 3 == 0 else {}
    return program(1.0 + number % 97 / 100, tag=mark[:8], **wrong)


SCRIPT = {"planner/plan": [plan("s1")], "planner/tree": [script], "coder/realise": [written], "coder/repair": [written], "coder/first": [written]}


def solving(models: ScriptedModels, journal: MemoryJournal, **budget):
    chosen = Settings(workflow="worldmodel", planner="scripted", coder="scripted", judge="scripted", budget=Budget(verifier_seconds=None, **budget))
    return engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), chosen, TASK, "softmax", models=models)


@pytest.mark.slow
async def test_a_killed_run_asks_to_the_letter_what_it_would_have_asked():
    whole, models = MemoryJournal(), ScriptedModels(SCRIPT)
    summary = await solving(models, whole, candidates=9, calls=30).execute()
    assert summary.outcome == "improved" and {"planner/tree", "coder/realise", "coder/repair"} <= set(models.purposes)
    assert "verifier/judge" not in models.purposes and "verifier/diagnose" not in models.purposes
    asked = [request.messages for request in models.requests]
    for cut in range(8, len(whole.events), 9):
        journal, again = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts), ScriptedModels(SCRIPT)
        resumed = await solving(again, journal, candidates=9, calls=30).execute()
        assert [r.messages for r in again.requests] == asked[len(asked) - len(again.requests) :], cut
        assert resumed.outcome == summary.outcome and [c.sha for c in resumed.candidates] == [c.sha for c in summary.candidates], cut
        assert [(t.what, t.node) for w in ("chosen", "learned") for t in trees(journal, w)] == [
            (t.what, t.node) for w in ("chosen", "learned") for t in trees(whole, w)
        ]


async def test_a_stale_script_is_refused_with_its_sentence_and_the_rest_of_a_half_good_one_is_kept():
    bad = [
        lambda r: replied(revision_of(r) + 1, add("x")),
        lambda r: replied(0, add("a", "n7"), add("b", id="x"), add("c", "x"), {"op": "drop", "node": "n0"}),
    ]
    models = ScriptedModels({**SCRIPT, "planner/tree": [bad[0], script], "planner/reply": [bad[1]]})
    journal = MemoryJournal()
    await solving(models, journal, candidates=3, calls=12).execute()
    mended = models.of("planner/reply")[0].messages[-1].content
    assert "the script is about revision 1 of the tree, which is at 0 now" in mended
    edited = trees(journal, "edited")[0]
    assert [n.title for n in edited.nodes[1:]] == ["b", "c"] and edited.nodes[2].parent == "n1"
    assert any("there is no node 'n7'" in sentence for sentence in edited.left_out) and len(edited.left_out) == 2
    told = models.of("planner/tree")[1].messages[1].content
    assert "## What of your last script was left out" in told and "there is no node 'n7'" in told


async def test_scripts_that_cannot_be_used_leave_the_first_program_to_the_plan():
    models = ScriptedModels({**SCRIPT, "planner/tree": ["no"], "planner/reply": ["no"], "coder/first": [program(1.4)]})
    summary = await solving(models, MemoryJournal(), candidates=3, calls=20).execute()
    assert summary.outcome == "improved" and summary.candidates[0].title == "A program" and "coder/first" in models.purposes
    assert any("no usable script" in error for error in summary.errors)


async def test_a_failure_is_shown_with_its_diagnosis_and_the_tree_is_edited_before_the_last_attempt():
    def wrong(request) -> str:
        mark = hashlib.sha256(request.messages[1].content.encode()).hexdigest()[:8]
        return program(1.2, tag=mark, status="wrong_result", message="values differ at the tail")

    one = [lambda r: replied(revision_of(r), add("only one"), add("another")), lambda r: replied(revision_of(r))]
    models = ScriptedModels({**SCRIPT, "planner/tree": one, "coder/realise": [wrong], "coder/repair": [wrong]})
    journal = MemoryJournal()
    summary = await solving(models, journal, calls=40).execute()
    assert summary.outcome == "failed" and "there is no further idea" in summary.reason
    assert len(summary.candidates) == 2 * MOST_TRIES
    last = [t for t in trees(journal, "learned") if node(t, t.node).state == "given up"]
    assert len(last) == 2 and "it is given up" in last[0].reason
    shown = models.of("planner/tree")[1].messages[1].content
    assert re.search(r"Reason for editing it now: n\d has one attempt left", shown)
    assert "values differ at the tail" in shown.partition("## Tree")[2].partition("\n## ")[0] and "failed 2 of 3 times" in shown
