"""Work that a program does outside its interval is seen, also where a call is shorter than what a busy machine is allowed."""

from __future__ import annotations

import random

import pytest

from verifier.timing import Side, clock_finding

US = 1000


def side(inner: int, ahead: int, copied: int, jitter: int = 20 * US) -> Side:
    """Microseconds in, a side with forty calls out."""
    draws = random.Random(inner + ahead + copied)
    made = Side(None, None)  # type: ignore[arg-type]
    for _ in range(40):
        noise = [draws.randrange(jitter) for _ in range(3)]
        made.inner.append(inner * US + noise[0])
        made.wall.append(made.inner[-1] + 40 * US)
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
