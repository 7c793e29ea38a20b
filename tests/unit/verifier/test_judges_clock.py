"""The ratio measured by the judge's clock confirms the one measured by the program-side clock, or shows how far apart they are."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from verifier.timing.blocks import Side
from verifier.timing.intervals import Repeatability
from verifier.timing.judges_clock import by_judge
from verifier.timing.pairs import Pair

KNOWN = Repeatability(least=0.001, noise=0.2, weight=4)
US = 1000


def pairs_of(program_us, eager_us, noise=0.02, turn=0.1, overhead_us=15, blocks=24, count=3, lies=0.0, of_calls=1.0, seed=0):
    """Returns pairs whose program-side clock undercounts a share `of_calls` of the calls by a fraction `lies` of their time. The judge's excess over
    it is skewed, as round trips are."""
    draws = np.random.default_rng(seed)
    turns = np.exp(turn * draws.standard_normal((blocks, 2)))

    def side(name, middle, lies):
        made = Side(name, None)  # type: ignore[arg-type]
        true = middle * US * turns * np.exp(noise * draws.standard_normal((blocks, 2)))
        inner = true - (draws.random((blocks, 2)) < of_calls) * lies * middle * US
        made.laps.wall = (true + (30 + draws.exponential(overhead_us, (blocks, 2))) * US).ravel().tolist()
        made.laps.inner = inner.ravel().tolist()
        made.blocks = (inner / 1e6).tolist()
        return made

    return [Pair(side(None, program_us, lies), [side("eager", eager_us, 0.0)], SimpleNamespace()) for _ in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("program_us", "eager_us", "noise"), [(8, 20, 0.02), (100, 150, 0.05), (900, 1000, 0.005), (9000, 8000, 0.1)])
def test_an_honest_clock_is_borne_out(program_us, eager_us, noise):
    for seed in range(12):
        interval, problem = by_judge(pairs_of(program_us, eager_us, noise, seed=seed), KNOWN, seed)
        assert problem == ""
        assert interval is None or interval.low * 0.9 < eager_us / program_us < interval.high * 1.1


@pytest.mark.parametrize("count", [1, 3])
def test_a_tenth_less_in_every_call_is_seen(count):
    """Undercounting by this much is within the error that is allowed for the judge's clock alone."""
    for seed in range(5):
        interval, problem = by_judge(pairs_of(1000, 1000, lies=0.1, count=count, seed=seed), KNOWN, seed)
        assert "times as fast as eager's, by the judge's" in problem
        assert interval.low < 1 < interval.high


def test_a_lie_in_a_minority_of_calls_is_seen_where_it_moves_the_ratio():
    """If calls vary by a tenth, undercounting two fifths of them shifts the median by about as much."""
    seen = [by_judge(pairs_of(10_000, 10_000, noise=0.1, lies=0.3, of_calls=0.4, blocks=60, seed=seed), KNOWN, seed)[1] != "" for seed in range(10)]
    assert sum(seen) >= 8


def test_of_calls_that_are_short_beside_a_round_trip_the_judge_says_nothing():
    interval, problem = by_judge(pairs_of(3, 8, overhead_us=60), KNOWN, 1)
    assert interval is None and problem == ""
