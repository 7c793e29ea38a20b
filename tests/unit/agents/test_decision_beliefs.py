"""Beliefs follow from how well strategies kept their promises, and predictions are compared with outcomes."""

from __future__ import annotations

import json
import math
import random

import pytest

from agents.decisions.belief import COVERAGE, NO_PROMISE, SPREAD, Belief, Marks, Posterior, Prediction, Track
from agents.decisions.script import MOST_OPEN, ScriptReply, edited
from agents.decisions.tree import Tree
from agents.decisions.view import Program, View, changed, lines, tree_text
from agents.events import MAX_PAYLOAD_BYTES
from agents.payloads import TreeChanged
from agents.strategies.ledger import Record, kept


def test_without_a_record_a_promise_is_believed_and_with_one_it_is_discounted():
    fresh = Posterior({}).of(["vectorise"], 1.5)
    assert fresh.gain == pytest.approx(1.5) and fresh.low < 1.5 < fresh.high
    broken = Posterior({"vectorise": Record(tried=20, kept=0.0)}).of(["vectorise"], 1.5)
    assert 1.0 < broken.gain < 1.05
    exact = Posterior({"vectorise": Record(tried=20, kept=20.0)}).of(["vectorise"], 1.5)
    assert exact.gain == pytest.approx(1.5) and exact.deviation < fresh.deviation


def test_a_strategy_without_tries_is_shrunk_towards_all_that_is_known():
    poor = Posterior({"vectorise": Record(tried=30, kept=0.0)})
    assert poor.of(["row-cache"], 1.5).gain < 1.1, "this author's promises came to nothing so far"
    mixed = Posterior({"vectorise": Record(tried=30, kept=0.0), "row-cache": Record(tried=30, kept=30.0)})
    of = {name: mixed.of([name], 1.5).gain for name in ("vectorise", "cuda-graph", "row-cache")}
    assert of["vectorise"] < of["cuda-graph"] < of["row-cache"]


def test_a_combination_that_shares_a_strategy_counts_in_part():
    known = Posterior({"vectorise + row-cache": Record(tried=20, kept=0.0), "cuda-graph": Record(tried=20, kept=20.0)})
    both, one = known.share(["row-cache", "vectorise"]), known.share(["vectorise"])
    assert both[0] < one[0] and both[1] > one[1], "the order of names is none of its business"
    assert known.share([])[1] == known.share(["elsewhere"])[1], "what is like nothing known rests on all together"


def test_no_promise_exceeds_what_the_floor_leaves():
    posterior = Posterior({})
    assert posterior.of([], 10.0, 1.3).gain == pytest.approx(1.3)
    assert posterior.of([], 1.2, 5.0).gain == pytest.approx(1.2)
    assert posterior.of([], None).gain == pytest.approx(NO_PROMISE)
    assert posterior.of([], 0.5).gain == 1.0, "a loss is not believed to be a gain"


def test_predicted_intervals_hold_the_share_they_say_where_the_model_is_right():
    """Gains are drawn from the stated model and learned from one by one: the coverage stays within the sampling error of 2,000 draws."""
    draw, promise, track, record = random.Random(3), 1.4, Track(), Record()
    share = draw.gauss(0.7, 0.2)
    for _ in range(2000):
        belief = Posterior({"vectorise": record}).of(["vectorise"], promise)
        came = promise ** draw.gauss(share, SPREAD)
        track.made.append(Prediction(belief, promise, came))
        record = record.plus(Record(tried=1, kept=math.log(came) / math.log(promise)))
    marks = track.marks
    assert marks.within / marks.predictions == pytest.approx(COVERAGE, abs=0.03)
    assert marks.off < marks.promises_off and "of 2000 gains fell into the interval predicted" in marks.said
    assert belief.mean / math.log(promise) == pytest.approx(share, abs=0.05), "the posterior comes to the share that is kept"


def test_beliefs_use_the_ledgers_unit():
    assert kept(1.5, 1.5**0.4) == pytest.approx(0.4)
    learned = Posterior({"row-cache": Record(tried=1000, kept=400.0)}).of(["row-cache"], 1.5)
    assert learned.gain == pytest.approx(1.5**0.4, rel=0.01)


def test_no_prediction_no_mark():
    assert Marks().said == "" and Track().marks == Marks()
    one = Track([Prediction(Belief(0.0, 0.1), None, 1.0)]).marks
    assert (one.within, one.off, one.promises_off) == (1, 1.0, None)


def big_view(count: int) -> View:
    tree = Tree()
    for number in range(count):
        op = {"op": "add", "parent": f"n{number}", "title": "ä" * 200, "text": "x", "strategies": ["vectorise"] * 6, "expected": 1.234567}
        tree = edited(tree, ScriptReply(revision=tree.revision, ops=[op]), ("vectorise",)).tree
        if number < count - MOST_OPEN:
            tree.settled(tree.nodes[f"n{number + 1}"], number + 1)
    posterior = Posterior({})
    beliefs = {node.id: posterior.of(node.strategies, node.promise) for node in tree.open}
    programs = {node.id: Program(1.0 + node.number / 100, 1.01) for node in tree.nodes.values() if node.candidate is not None}
    return View(tree, beliefs, programs, left_out=["s" * 5000] * 50, why="so")


def test_an_event_holds_any_tree_and_says_what_did_not_fit():
    view = big_view(300)
    event = changed(view, "edited", "r" * 5000)
    assert len(json.dumps(event.written(), ensure_ascii=False).encode()) <= MAX_PAYLOAD_BYTES and event.more > 0
    assert len(event.nodes) + event.more == 301 and len([node for node in event.nodes if node.state == "open"]) <= MOST_OPEN
    assert TreeChanged.model_validate(event.written()) == event
    small = changed(big_view(14), "chosen", "why", node="n3")
    assert small.more == 0 and small.left_out == []
    told = list(lines(small))
    assert told[0].startswith("- n0") and told[3].startswith("      - n3*") and "believed 1.23x [" in told[3], told[:4]


def test_the_view_values_ideas_by_the_programs_that_they_wait_for():
    view = big_view(20)
    ready, waiting = view.tree.frontier[0], view.tree.open[-1]
    assert view.value(ready) == pytest.approx(view.programs[ready.parent].level * view.beliefs[ready.id].gain)
    assert view.value(waiting) > view.value(ready)
    assert [drop.node for drop in view.room_for(1)] == [waiting.id], "only leaves go"
    assert "believed" in tree_text(view) and "strategies: vectorise" in tree_text(view)
