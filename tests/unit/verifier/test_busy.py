"""A busy host is reported, and no program is declared faster on one."""

from __future__ import annotations

import random

import pytest

from verifier.timing.blocks import Side
from verifier.timing.call import Call
from verifier.timing.outside import busy

US = 1000


def call(inner: int, queued: int = 0) -> Call:
    return Call(inner * US, inner * US, 0, 0, None, [], [], None, [], in_series=True, queued=queued * US)


def side(inner: float, preempted: float = 0.0, slow: float = 0.0, seed: int = 0) -> Side:
    """Builds a side, with times in microseconds, in which a share of the calls was preempted, or was slowed down without a trace in the kernel's
    counters."""
    draws = random.Random(seed)
    made = Side(None, None)  # type: ignore[arg-type]
    for _ in range(40):
        calls = []
        for _ in range(4):
            hit = draws.random() < preempted
            calls.append(
                call(int(inner * (9 if hit else 4 if draws.random() < slow else 1) + draws.randrange(3)), queued=int(inner * 8) if hit else 0)
            )
        made.blocks.append([made.add(calls)])
    return made


def test_preempted_calls_are_left_out():
    assert side(1000, preempted=0.3).laps.inner and max(side(1000, preempted=0.3).laps.inner) < 1100 * US


def test_a_call_that_waited_little_is_no_preempted_one():
    assert not call(1000, queued=90).preempted and not call(50, queued=60).preempted and call(50, queued=150).preempted


@pytest.mark.parametrize(("share", "said"), [(0.0, False), (0.1, False), (0.4, True)])
def test_above_a_fifth_nothing_is_concluded(share, said):
    text = busy([(side(500, share), side(1000, share, seed=1))], 2.0, most=0.2)
    assert ("other work took the processors" in text) == said


def test_the_quickest_quarter_must_say_the_same():
    program, eager = side(1200), side(1000, slow=0.5, seed=2)
    assert "by the quickest quarter" in busy([(program, eager)], 1.5, most=0.2)
    assert busy([(side(500), eager)], 1.5, most=0.2) == ""
