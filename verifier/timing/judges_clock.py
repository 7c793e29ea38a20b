"""Computes the speedup over eager as measured by the judge's own clock. The program-side clock is trusted only to the extent that this one confirms
it.

The program-side clock has the finer resolution, but it runs in the program's process, and native code there can forge it. The judge's clock includes
a round trip, whose usual cost is known from eager, timed in turn with the program. Both ratios come from the same calls through the same steps, so a
disturbed call affects both, and their difference is known much more precisely than either of them, because each bootstrap draw is used for both.
"""

from __future__ import annotations

import math

import numpy as np

from verifier.report import Interval
from verifier.timing.blocks import Side
from verifier.timing.intervals import Estimate, Repeatability, estimate
from verifier.timing.outside import CLOCK_SLACK_NS, LEAST_NS, clock_finding, middle
from verifier.timing.pairs import Pair, estimate_of

ERRORS = 3.0  # number of standard errors of their difference by which the two clocks may disagree
DISAGREE = 0.02  # further relative tolerance, since no two sides of an honest measurement are exactly alike
TOO_UNSTEADY = 0.25  # relative half width above which the judge's interval is not informative


def clocks(pairs: list[Pair], known: Repeatability, seed: int) -> tuple[Interval | None, str]:
    """Returns the speedup over eager by the judge's clock (null if this clock is too unsteady for such short calls), and a description of how the
    program-side clock disagrees with it, or an empty string."""
    interval, exceeds = by_judge(pairs, known, seed)
    problems = [clock_finding(pair.program, pair.baselines[0]) for pair in pairs]
    rivals = [clock_finding(side, pair.baselines[0]) for pair in pairs for side in pair.baselines if side.name == "rival"]
    problems += [f"of the program that it is timed against: {problem}" for problem in rivals if problem]
    return interval, next(filter(None, [*problems, exceeds]), "")


def by_judge(pairs: list[Pair], known: Repeatability, seed: int) -> tuple[Interval | None, str]:
    """Returns the interval by the judge's clock, and a description of how far the program-side clock exceeds it after allowing for errors, or an
    empty string."""
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
    """Returns milliseconds (blocks, calls of a block) by the judge's clock, minus a usual round trip and plus charges."""
    return np.maximum(np.reshape(side.laps.wall, np.shape(side.blocks)) - overhead, LEAST_NS) / 1e6 + side.charged.ns / 1e6
