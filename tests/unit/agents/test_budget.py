from __future__ import annotations

from datetime import datetime

import pytest

from agents.budget import Ledger, OutOfBudget, Still, seconds_worked
from agents.events import Event
from agents.settings import Budget


def ledger(**limits) -> Ledger:
    return Ledger(Budget(**{"candidates": None, "verifier_seconds": None, "seconds": None, **limits}))


def test_reservations_of_calls_in_flight_count():
    book = ledger(calls=3)
    for key in "abc":
        book.reserve(key, {"calls": 1})
    with pytest.raises(OutOfBudget, match="3 model calls"):
        book.reserve("d", {"calls": 1})
    book.release("a")
    book.reserve("d", {"calls": 1})


def test_what_is_kept_back_cannot_be_reserved():
    book = ledger(verifier_seconds=100)
    book.spend({"verifier_seconds": 60})
    with pytest.raises(OutOfBudget):
        book.reserve("k", {"verifier_seconds": 20}, keep={"verifier_seconds": 30})
    book.reserve("k", {"verifier_seconds": 20})


def test_a_used_up_unit_refuses_only_calls_that_need_it():
    book = ledger(calls=1, verifier_seconds=10)
    book.spend({"calls": 1})
    book.reserve("k", {"verifier_seconds": 0})
    with pytest.raises(OutOfBudget):
        book.reserve("k", {"calls": 1})
    book.spend({"verifier_seconds": 11})
    with pytest.raises(OutOfBudget) as refusal:
        book.reserve("k", {"verifier_seconds": 0})
    assert (refusal.value.unit, refusal.value.spent, refusal.value.limit) == ("verifier_seconds", 11, 10)


def test_limits_are_raised_never_cut():
    book = ledger(candidates=4, calls=2)
    book.raise_limits({"candidates": 8, "calls": 1, "tokens": 5, "nonsense": 3, "seconds": "x"})
    assert (book.limits.candidates, book.limits.calls, book.limits.tokens) == (8, 2, None)
    book.raise_limits({"calls": None})
    assert book.limits.calls is None


def test_the_time_of_an_interrupted_run_counts_up_to_its_last_event():
    def at(second: int, kind: str, **payload) -> Event:
        return Event(run="r", seq=second + 1, at=f"2026-01-01T00:00:{second:02d}+00:00", kind=kind, payload=payload)

    events = [at(0, "run.started"), at(3, "budget.updated", spent={"seconds": 2.5}), at(5, "span.opened"), at(6, "run.paused")]
    assert seconds_worked(events[:1]) == 0
    assert seconds_worked(events[:3]) == 4.5
    assert seconds_worked(events) == 5.5
    assert seconds_worked([*events, at(20, "control.requested"), at(30, "run.resumed"), at(31, "span.closed")]) == 6.5


def test_time_in_which_a_run_lay_still_is_no_time_of_its_steps():
    def at(second, kind, agent="engine"):
        return Event(run="r", seq=second + 1, at=f"2026-01-01T00:00:{second:02d}+00:00", kind=kind, agent=agent, payload={})

    still = Still()
    events = [at(0, "run.started"), at(4, "span.opened"), at(30, "control.requested", "person"), at(31, "run.resumed")]  # killed during second 4
    events += [at(35, "run.paused"), at(40, "note.added", "person"), at(50, "run.resumed"), at(52, "span.closed")]
    for event in events:
        still.account(event)
    opened, closed = (datetime.fromisoformat(f"2026-01-01T00:00:{second:02d}+00:00") for second in (4, 52))
    assert still.between(opened, closed) == (31 - 4) + (50 - 35)
    assert still.between(opened.replace(second=33), closed) == 15
    assert seconds_worked(events) == 4 + 4 + 2


def test_a_budget_that_is_not_spent_says_what_the_next_step_needs():
    ledger = Ledger(Budget(verifier_seconds=240))
    ledger.spend({"verifier_seconds": 66.31})
    with pytest.raises(OutOfBudget, match=r"240 seconds of verifier time is too small for the next step \(66.31 used, about 175 needed\)"):
        ledger.reserve("a", {"verifier_seconds": 55}, {"verifier_seconds": 120})
    ledger.spend({"verifier_seconds": 200})
    with pytest.raises(OutOfBudget, match=r"is spent \(266.3 used\)"):
        ledger.reserve("a", {"verifier_seconds": 55})
