"""Work that a program does outside its interval is seen, also where a call is shorter than what a busy machine is allowed."""

from __future__ import annotations

import random

import pytest

from verifier.timing import Side, clock_finding

US = 1000


def side(inner: int, ahead: int, copied: int, jitter: int = 20 * US, extra: int = 0, unsteady: int = 1) -> Side:
    """Microseconds in, a side with forty calls out. `extra`: what the judge's clock counts beyond the shim's and the round trip, by up to `unsteady`
    more."""
    draws = random.Random(inner + ahead + copied)
    made = Side(None, None)  # type: ignore[arg-type]
    for _ in range(40):
        noise = [draws.randrange(jitter) for _ in range(3)]
        made.inner.append(inner * US + noise[0])
        made.wall.append(made.inner[-1] + (40 + extra + draws.randrange(unsteady)) * US)
        made.ahead.append(ahead * US + noise[1])
        made.copied.append(copied * US + noise[2])
    made.round_trip = 40 * US
    return made


EAGER = side(inner=800, ahead=12_000, copied=300)


def test_a_program_that_is_faster_is_believed():
    assert clock_finding(side(400, 12_000, 300), EAGER) == ""
    assert clock_finding(side(400, 12_050, 420), EAGER) == ""  # colder outputs
    assert clock_finding(side(1600, 12_400, 300), EAGER) == ""  # slower, and nothing gained


@pytest.mark.parametrize(
    ("program", "words"), [(side(2, 12_800, 300), "begins before the clock"), (side(2, 12_000, 1_100), "goes on after the clock")]
)
def test_a_call_that_was_only_moved_is_not(program, words):
    assert words in clock_finding(program, EAGER)


def test_a_clock_that_counts_too_little_is_seen_on_a_busy_machine():
    """What a busy machine adds to eager's round trip is allowed to the program half as much again: here a clock that counts half would be within."""
    busy = side(800, 12_000, 300, extra=1000)
    assert "counts too little" in clock_finding(side(400, 12_000, 300, extra=1400), busy)
    assert clock_finding(side(400, 12_000, 300, extra=1010), busy) == ""


def test_a_judge_whose_clock_is_unsteady_believes_no_claim():
    unsteady = side(800, 12_000, 300, extra=1000, unsteady=4000)
    assert "unsteady" in clock_finding(side(100, 12_000, 300, extra=1000, unsteady=4000), unsteady)
    assert clock_finding(side(700, 12_000, 300, extra=1000, unsteady=4000), unsteady) == ""  # claims little


def test_no_call_takes_no_time():
    assert "counts 0.000 ms a call" in clock_finding(side(0, 12_000, 300, jitter=1, extra=1100), side(800, 12_000, 300, extra=5000))
