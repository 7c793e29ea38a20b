"""Computes the speedup over eager by the judge's own clock. The clock beside the program is believed as far as this one confirms it.

The clock beside the program is the finer one, but it runs in the program's process, and native code there can forge it. The judge's clock includes a
round trip; eager, timed in turn with the program, shows its usual cost. Both ratios come from the same calls by the same steps, so a disturbance of a
call is in both, and their difference is known much better than either: each bootstrap draw is used for both.
"""

from __future__ import annotations

import math

import numpy as np

from verifier.report import Interval
from verifier.timing.blocks import Side
from verifier.timing.intervals import Estimate, Repeatability, estimate
from verifier.timing.outside import CLOCK_SLACK_NS, LEAST_NS, clock_finding, middle
from verifier.timing.pairs import Pair, estimate_of

ERRORS = 3.0  # standard errors of their difference by which the two clocks may disagree
DISAGREE = 0.02  # further relative tolerance, since no two sides of an honest measurement are quite alike
TOO_UNSTEADY = 0.25  # relative half width above which the judge's interval tells a person nothing


def clocks(pairs: list[Pair], known: Repeatability, seed: int) -> tuple[Interval | None, str]:
    """Returns the speedup over eager by the judge's clock (null: too unsteady for such short calls), and how a program's own clock disagrees, or an
    empty string."""
    interval, exceeds = by_judge(pairs, known, seed)
    problems = [clock_finding(pair.program, pair.baselines[0]) for pair in pairs]
    rivals = [clock_finding(side, pair.baselines[0]) for pair in pairs for side in pair.baselines if side.name == "rival"]
    problems += [f"of the program that it is timed against: {problem}" for problem in rivals if problem]
    return interval, next(filter(None, [*problems, exceeds]), "")


def by_judge(pairs: list[Pair], known: Repeatability, seed: int) -> tuple[Interval | None, str]:
    """Returns the same interval, and by how much the clock beside the program exceeds it beyond its errors, or an empty string."""
    shim, judge = estimate_of(pairs, "eager", known, seed), _estimated(pairs, known, seed)
    interval = judge.interval if judge.half < TOO_UNSTEADY else None
    beyond = math.log(shim.interval.ratio / judge.interval.ratio)
    error = float((shim.drawn - judge.drawn).std())
    if beyond <= ERRORS * error + math.log1p(DISAGREE) + CLOCK_SLACK_NS / 1e6 / judge.program_ms:
        return interval, ""
    problem = (
        f"by the clock beside the program a call is {shim.interval.ratio:.3f} times as fast as eager's, by the judge's {judge.interval.ratio:.3f}: "
        f"they lie {math.expm1(beyond):.1%} apart, with a standard error of {error:.1%}"
    )
    return interval, problem


def _estimated(pairs: list[Pair], known: Repeatability, seed: int) -> Estimate:
    usual = [middle(pair.baselines[0].laps.within) for pair in pairs]
    program, eager = (
        [_milliseconds(side, overhead) for side, overhead in zip(sides, usual, strict=True)]
        for sides in ([pair.program for pair in pairs], [pair.baselines[0] for pair in pairs])
    )
    return estimate(program, eager, known, seed, [pair.round for pair in pairs])


def _milliseconds(side: Side, overhead: float) -> np.ndarray:
    """Converts nanoseconds to milliseconds (blocks, calls of a block) by the judge's clock, less a usual round trip, with charges added."""
    return np.maximum(np.reshape(side.laps.wall, np.shape(side.blocks)) - overhead, LEAST_NS) / 1e6 + side.charged.ns / 1e6
