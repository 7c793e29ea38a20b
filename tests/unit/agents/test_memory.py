from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from agents.memory import Memory, fingerprint
from agents.memory.fingerprints import normalised
from agents.roles.situation import Attempt, Edit, Plan, Situation, beside
from agents.settings import Settings
from agents.stopping import since_last_gain
from agents.strategies.ledger import kept
from tests.unit.agents.agent_fakes import TASK, compared, report

PLAN = Plan({"steps": [{"id": "g1", "operators": ["layer norm", "GELU"]}, {"id": "g2", "operators": ["softmax"]}]}, ())


def attempt(number, parent=None, strategy="", step="", status="passed", ratio=1.0, message="", expected=None):
    job = SimpleNamespace(task_source=TASK, program_source=str(number), tier="quick", precision="fp32-strict", mode="train")
    edit = Edit(str(number), f"program {number}", "", (), strategy=strategy, step=step)
    return Attempt(number, parent, edit, report(job, status, ratio, message), expected=expected)


def situation(*attempts):
    """Builds a situation in which each program is timed alongside its parent, as in workflows."""
    for one in attempts:
        before = next((a for a in attempts if a.number == one.parent and a.number < one.number), None)
        one.base = beside(before)
        if one.passed and one.base is not None:
            one.report.timing.rival = compared("rival", one.report.timing.program_ms, one.base.report.timing.program_ms)
    return Situation(TASK, "softmax", Settings(), plan=PLAN, attempts=list(attempts))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/tmp/tmpab12cd34/main.cpp:17:9: error: 'foo' was not declared", "/var/b/tmpzz99qq88/main.cpp:101:2: error: 'foo' was not declared"),
        ("max difference 1.5e-3 at (3, 4, 5) exceeds 1e-4", "max difference 0.25 at (17, 2) exceeds 1e-5"),
        ("CUDA error: an illegal memory access at 0x7f00aa11", "CUDA error: an illegal memory access at 0x7fbeef"),
        ("undefined symbol go in libk-deadbeef1234.so", "undefined symbol go in libk-0123456789ab.so"),
        ("error: no match\n  17 | x = y;\n     | ^", "error: no match\n  90 | other = line;\n     | ^"),
    ],
)
def test_what_differs_between_two_occurrences_is_no_part_of_an_error(one, other):
    assert fingerprint(one) == fingerprint(other)


def test_different_errors_stay_apart():
    messages = [
        "error: 'foo' was not declared",
        "error: 'bar' was not declared",
        "wrong shape",
        "float2 load is misaligned",
        "float4 load is misaligned",
    ]
    assert len(set(map(fingerprint, messages))) == len(messages)
    assert normalised("") == "" and fingerprint("")


def test_an_error_is_remembered_once_with_all_its_candidates_and_what_ended_it():
    first, again = "error: 'foo' at /tmp/a/x.cpp:3", "error: 'foo' at /tmp/b/x.cpp:9"
    memory = Memory.of(situation(
        attempt(1, status="build_failed", message=first), attempt(2, 1, status="build_failed", message=again),
        attempt(3, 2, status="wrong_result", message="max difference 3"), attempt(4, 3, ratio=1.5),
    ))  # fmt: skip
    assert [(f.status, f.candidates, f.fixed_by) for f in memory.failures] == [("build_failed", (1, 2), 4), ("wrong_result", (3,), 4)]
    assert memory.known("build_failed", again).candidates == (1, 2)
    assert memory.known("crashed", again) is None
    said = memory.digest("coder")
    assert "2 times, last in candidate 2; candidate 4 no longer has it" in said and "candidate 4: 1.50x" in said


def test_methods_carry_what_was_hoped_and_what_came():
    memory = Memory.of(situation(
        attempt(1, ratio=1.2, strategy="fuse-row-reduction", step="g1"),
        attempt(2, 1, ratio=1.8, strategy="vectorise", step="g1", expected=1.3),
        attempt(3, 2, ratio=1.8, strategy="block-size", step="g2", expected=1.1),
        attempt(4, 2, status="wrong_result", strategy="one-pass-softmax", step="g2", message="max difference 1"),
        attempt(5, 2, ratio=1.5, strategy="row-cache", step="g2", expected=1.4),
    ))  # fmt: skip
    outcomes = {t.strategy: (t.outcome, t.failed) for t in memory.tries}
    assert outcomes == {
        "fuse-row-reduction": ("gained", False), "vectorise": ("gained", False), "block-size": ("no gain", True),
        "one-pass-softmax": ("wrong result", True), "row-cache": ("slower", True),
    }  # fmt: skip
    vectorise = next(t for t in memory.tries if t.strategy == "vectorise")
    assert (vectorise.expected, round(vectorise.realised, 3), vectorise.operators) == (1.3, 1.5, ("layer norm", "GELU"))
    assert memory.failed("row-cache", "g2") and memory.failed("row-cache", "g1") is None and memory.failed("vectorise", "g1") is None
    said = memory.digest("verifier")
    assert "- row-cache at g2 (softmax): slower, 0.83x where 1.40x was expected" in said
    assert said.index("row-cache") < said.index("vectorise"), "what failed comes first"


def test_a_gain_is_what_was_timed_beside_the_program_before_however_eager_drifts():
    """The times were 275.6 us before and 275.3 us after, while eager went from 1165 to 1573 us: the lesson learned from this was "gained, 1.35x"."""
    first, second = attempt(1, ratio=4.23), attempt(2, 1, ratio=5.71, strategy="lean-forward", expected=1.3)
    known = situation(first, second)
    second.report.timing.rival = compared("rival", 0.2753, 0.2756)
    tried = Memory.of(known).tries[0]
    assert "candidate 2: 5.71x over eager" in Memory.of(known).digest("planner"), "as its own measurement has it, as everywhere in a request"
    assert tried.outcome == "no gain" and tried.realised == pytest.approx(1.001, abs=1e-3)
    assert second.level == pytest.approx(4.23 * 1.001, rel=1e-3) and since_last_gain(known.attempts) == [second]
    assert kept(second.expected, second.gain.ratio) == pytest.approx(0.0, abs=0.01)
    second.report.timing.rival = None
    assert Memory.of(known).tries[0].outcome == "could not be measured", "two ratios to eager, each of its own time, are no gain"
    assert second.gain is None


def test_a_method_that_was_repaired_did_not_fail():
    memory = Memory.of(situation(
        attempt(1, ratio=1.0, strategy="fuse-pointwise"),
        attempt(2, 1, status="build_failed", strategy="vectorise", message="error: x"),
        attempt(3, 2, ratio=1.6, strategy="vectorise"),
    ))  # fmt: skip
    assert memory.failed("vectorise") is None
    assert next(t for t in memory.tries if t.strategy == "vectorise").realised == pytest.approx(1.6), "over the last program that passed"


def test_the_best_of_each_line():
    memory = Memory.of(situation(
        attempt(1, ratio=1.1, strategy="a"), attempt(2, ratio=1.4, strategy="b"), attempt(3, 1, ratio=2.0, strategy="c"),
        attempt(4, 3, ratio=1.9, strategy="d"), attempt(5, status="crashed"),
    ))  # fmt: skip
    assert [(line.root, line.best, line.strategies, line.programs) for line in memory.lineages] == [(1, 3, ("a", "c"), 3), (2, 2, ("b",), 1)]
    assert "candidate 3: 2.00x" in memory.digest("planner")


def test_a_digest_is_short_and_empty_where_nothing_was_tried():
    assert Memory.of(situation()).digest("planner") == ""
    many = [attempt(n, status="crashed", message=f"error: thing {'abcdefghijklmnopqrstuvwxyz'[n]} fell" + "x" * 5000) for n in range(20)]
    said = Memory.of(situation(*many)).digest()
    assert "- and 12 more" in said and len(said) < 5000


def test_an_older_attempt_may_be_its_own_ancestor_by_mistake():
    memory = Memory.of(situation(attempt(1, 2, ratio=1.1, strategy="a"), attempt(2, 1, ratio=1.2, strategy="b")))
    assert len(memory.tries) == 2


def test_a_port_that_is_absent_answers_nothing():
    from agents.knowledge import look_up
    from agents.memory import recall

    span = SimpleNamespace(run=SimpleNamespace(library=None, inspirations=None, split=None))
    assert asyncio.run(look_up(span, "anything")) == []
    assert asyncio.run(recall(span, situation())) == []
