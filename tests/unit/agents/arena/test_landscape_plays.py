"""Workflows on a landscape: the real engine with a simulated model and a table."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from agents.arena.model import QUALITIES, Hand, PlayedModel, Quality, Written
from agents.arena.played_verifier import PlayedVerifier
from agents.arena.race import Play, PlayedJournal, curves, play, race
from agents.arena.synthetic import synthetic
from agents.arena.tally import explanation, tallied
from agents.choices.workflows import SEARCHES
from agents.llm.messages import Message, Request
from agents.settings import Budget
from verifier.jobs import VerifyJob

BUDGET = Budget(calls=12, candidates=12, verifier_seconds=None, seconds=None)
SURE = Quality("sure", insight=1, foresight=1, family_fault=0, program_fault=0, repair=1)
CLUMSY = Quality("clumsy", insight=0.5, foresight=0.5, family_fault=1, program_fault=0, repair=1)


@pytest.fixture(scope="module")
def table():
    return synthetic(2)


@pytest.mark.parametrize("workflow", list(SEARCHES))
def test_every_workflow_plays_within_its_budget_and_twice_the_same(table, workflow):
    landscape = table.landscapes[0]
    first, again = (play(landscape, workflow, 7, QUALITIES["middling"], BUDGET) for _ in range(2))
    assert first == again
    assert first.outcome in ("improved", "matched", "out_of_budget", "failed") and "unexpected" not in first.reason
    assert first.calls <= 12 and 1 <= first.programs <= 12 and first.verifier_seconds > 0
    assert all(a >= b - 0.2 for a, b in zip(first.regret_by_program, first.regret_by_program[1:], strict=False))
    assert 1 <= first.found <= first.best


def test_a_model_whose_repairs_do_not_help_goes_another_way(table):
    """Once there is a correct program, the rules alone move a play on to another method; with few calls, a play rarely gets that far."""
    stubborn = Quality("stubborn", insight=0.3, foresight=0.2, family_fault=0.5, program_fault=0.3, repair=0.1)
    plenty = Budget(calls=60, candidates=60, verifier_seconds=None, seconds=None)
    for seed in range(12):
        found = play(table.landscapes[0], "stitch", seed, stubborn, plenty)
        assert "unexpected" not in found.reason, (seed, found.reason)


@pytest.mark.parametrize("workflow", ["descend", "random"])
def test_workflows_without_a_model_ask_none(table, workflow):
    found = play(table.landscapes[0], workflow, 1, QUALITIES["middling"], BUDGET)
    assert (found.calls, found.tokens, found.dollars, found.purposes) == (0, 0, 0.0, {})


def test_calls_cost_what_the_distribution_says():
    quality = QUALITIES["middling"]
    model = PlayedModel(quality, 3)

    async def many():
        request = Request(messages=[Message(role="user", content="x")], purpose="coder/write")
        return [await model.ask("landscape", request, key="", run="", on_delta=None) for _ in range(400)]

    replies = asyncio.run(many())
    read = sorted(reply.usage.input_tokens for reply in replies)
    assert 0.9 * quality.tokens_in < read[200] < 1.1 * quality.tokens_in
    assert all(r.dollars == pytest.approx(r.usage.input_tokens * quality.dollars_in + r.usage.output_tokens * quality.dollars_out) for r in replies)
    assert model.seconds > 400 * quality.seconds_first and model.by_purpose == {"coder/write": 400}


def test_a_fault_is_a_familys_and_stays_until_it_is_learned(table):
    landscape = table.landscapes[0]
    hand = Hand(landscape, CLUMSY, 1)
    assert hand.fault(landscape.index(landscape.default)) == ""
    off = landscape.index((1, *landscape.default[1:]))
    both = landscape.index((1, 0, *landscape.default[2:]))
    assert hand.fault(off) == hand.fault(off) == hand.fault(both) == "family 0 1"
    hand.learn("family 0 1")
    assert hand.fault(off) == "" and hand.fault(both) == "family 1 0"


def test_without_repairs_a_clumsy_model_gets_nowhere_and_with_them_it_learns(table):
    landscape = table.landscapes[0]
    blind = Quality("blind", insight=0.5, foresight=0.5, family_fault=1, program_fault=0, repair=0)
    lost = [play(landscape, "stitch", seed, blind, BUDGET).success for seed in range(10)]
    learning = [
        play(landscape, "stitch", seed, CLUMSY, Budget(calls=30, candidates=30, verifier_seconds=None, seconds=None)).success for seed in range(10)
    ]
    assert sum(learning) > sum(lost)


def test_the_verifier_looks_up_with_noise_and_refuses_what_is_faulty(table):
    landscape = table.landscapes[0]
    journal = PlayedJournal("run")
    verifier = PlayedVerifier(landscape, journal, 1)
    verifier.engine = type("E", (), {"ledger": type("L", (), {"spent": type("S", (), {"calls": 2, "candidates": 1})})})
    point = landscape.best

    def report(written: Written):
        job = VerifyJob(task_source="", program_source=written.source)
        return asyncio.run(verifier.run(job, key="a#1", span="a", candidate="1")).report

    measured = [report(Written(point)).timing.program_ms * 1e3 for _ in range(50)]
    assert sum(measured) / 50 == pytest.approx(landscape.best_us, rel=0.02) and len(set(measured)) == 50
    wrong = report(Written(point, "family 0 1"))
    assert wrong.status == "wrong_result" and wrong.timing is None and wrong.speedup is None
    assert report(Written(landscape.status.index(2))).status == "build_failed"
    assert [event.kind for event in journal.events[:2]] == ["verification.queued", "verification.finished"]
    assert verifier.log[0].calls == 2 and verifier.seconds > 0


def test_written_programs_say_their_point_and_fault():
    for written in (Written(17), Written(3, "family 2 1"), Written(0, "program 0")):
        assert Written.read(written.source) == written


def test_regret_is_of_the_program_that_is_taken_for_the_best(table):
    landscape = table.landscapes[0]
    slow = max((i for i, s in enumerate(landscape.status) if s == 0), key=lambda i: landscape.us[i])
    entry = type("V", (), {"status": "passed", "measured_us": 1.0, "calls": 2, "point": landscape.best})
    then = type("V", (), {"status": "passed", "measured_us": 0.9, "calls": 3, "point": slow})  # noise makes it look faster
    found = Play(landscape.name, "stitch", 1, "", "", 3, 0, 0.0, 2, 0.0, 0.0, 1.0, landscape.eager_us / landscape.best_us)
    curves(landscape, [entry, then], found)
    start = 1 - landscape.best_us / landscape.eager_us
    assert found.regret_by_call[:2] == [start, start] and found.regret_by_call[2] == 0 and found.regret_by_call[3] > 0
    assert found.regret_by_program == [start, 0.0, found.regret_by_call[3]] and (found.calls_to_near_best, found.programs_to_near_best) == (2, 1)


def test_a_race_is_tallied_and_explained(table):
    pairs = [(landscape.name, workflow) for landscape in table.landscapes for workflow in ("stitch", "random")]
    tallies = tallied(race(table, pairs, range(6), SURE, BUDGET, workers=1), 12, 12)
    figures = tallies["stitch"].figures()
    assert (
        figures["plays"] == 12
        and len(figures["mean_regret_by_call"]) == 13
        and set(figures["final_regret_by_task"]) == {"synthetic_1", "synthetic_2"}
    )
    assert figures["calls_by_purpose"]["coder/write"] >= 1 and tallies["random"].figures()["calls_by_purpose"] == {}
    said = explanation(tallies)
    assert said.startswith(("stitch ends", "random ends")) and "12 plays" in said and "%" in said


@pytest.mark.slow
def test_playing_needs_no_torch():
    code = "import sys, agents.arena.race, agents.arena.cli, agents.arena.tally; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[4]).returncode == 0
