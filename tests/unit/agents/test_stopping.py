"""The stopping rules that all workflows share."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from agent_fakes import TASK, report

from agents.diagnosis import Diagnosis
from agents.roles.situation import Advice, Attempt, Edit, Plan, Situation
from agents.settings import Settings
from agents.stopping import families_to_leave, family, since_last_gain, stopping
from verifier.jobs import VerifyJob

MEMORY, OTHER = "fuse-pointwise", "a-method-of-its-own"


def situation(*speeds: float | None, strategy: str = MEMORY, floor_ms: float | None = None) -> Situation:
    """Builds a situation with one attempt per speed; None means that its result was wrong."""
    job = VerifyJob(task_source=TASK, program_source="x", tier="quick")
    known = Situation(TASK, "softmax", Settings(), plan=Plan({}, (), floor_ms=floor_ms))
    for number, speed in enumerate(speeds, start=1):
        edit = Edit("x", "t", "c", (), strategy)
        verdict = report(job, "wrong_result") if speed is None else report(job, ratio=speed)
        known.attempts.append(Attempt(number, None, edit, verdict))
    return known


def advised(known: Situation, method: str | None = MEMORY, route: str = "optimise", target: float | None = None, **more) -> Advice:
    run = SimpleNamespace(settings=Settings(target=target))
    advice = Advice(Diagnosis(bottleneck="memory", evidence=[], text="so it is"), route, "go on", method, 1.2)
    return stopping(run, known, advice, **more)


def test_the_target_counts_by_the_lower_bound():
    assert advised(situation(1.5), target=1.4).route == "stop"
    assert advised(situation(1.5), target=1.49).route == "optimise"


def test_95_percent_of_the_floor():
    found = advised(situation(1.5, floor_ms=1.92))  # the program takes 2 ms
    assert found.route == "stop" and "96 % of the floor" in found.reason and found.method is None
    assert advised(situation(1.5, floor_ms=1.8)).route == "optimise"


def test_a_gain_is_two_percent_over_the_best_before():
    known = situation(1.0, 1.5, 1.51, None, 1.6, 1.6)
    assert [a.number for a in since_last_gain(known.attempts)] == [6]
    assert since_last_gain(situation(None, None).attempts) == []


def test_a_plateau_first_asks_for_another_family_then_stops():
    flat = situation(1.5, 1.5, 1.5, None)
    assert families_to_leave(flat) == {family(MEMORY)}
    assert families_to_leave(situation(1.5, 1.5, 1.5)) == frozenset()
    stopped = advised(flat)
    assert stopped.route == "stop" and "plateau" in stopped.reason and family(MEMORY) in stopped.reason
    assert advised(flat, OTHER).route == "optimise"
    assert advised(flat, None, "repair").route == "repair"
    assert advised(situation(*[1.5] * 7), OTHER).route == "stop"


def test_nothing_right_yet_is_no_plateau():
    assert advised(situation(*[None] * 9), None, "repair").route == "repair"


@pytest.mark.parametrize("patience, route", [(3, "stop"), (8, "optimise")])
def test_populations_have_more_patience(patience, route):
    assert advised(situation(*[1.5] * 6), patience=patience).route == route


def test_advice_to_stop_stays_as_it_is():
    assert advised(situation(1.5), None, "stop").reason == "go on"


def test_a_program_with_own_kernels_can_be_asked_to_win():
    found = situation(1.2, 2.0)
    fast = found.attempts[1]
    fast.report = fast.report.model_copy(update={"program_class": "orchestration"})
    assert found.best is fast
    asked = replace(found, settings=Settings(winner="own-kernels"))
    assert asked.best is found.attempts[0] and sorted(found.attempts, key=asked.rank, reverse=True)[0] is found.attempts[0]
    only = replace(asked, attempts=[fast])
    assert only.best is fast, "where nothing else passed it is the result"
