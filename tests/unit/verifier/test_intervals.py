"""Confidence intervals for a speedup contain the true value as often as claimed, and are no wider than necessary."""

import numpy as np
import pytest

from verifier.timing.calibrate import VARIED, fit, summary
from verifier.timing.intervals import Repeatability, estimate, student, without_turns

KNOWN = Repeatability(least=0.001, noise=0.2, weight=6)


def draws(rng, processes, blocks, variation, spread, scale=1.0):
    """Returns samples of several processes: each has its own factor, and its calls scatter with heavy tails."""
    made = []
    for _ in range(processes):
        calls = rng.standard_t(4, size=(blocks, 2)) * variation * 0.8
        made.append(scale * np.exp(rng.normal(0, spread) + calls))
    return made


@pytest.mark.parametrize(
    ("processes", "variation", "spread"),
    [(3, 0.1, 0.02), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 0.1, 0.02), (3, 0.002, 0.001), (1, 0.002, 0.001)))],
)
def test_an_interval_of_the_same_code_holds_one(processes, variation, spread):
    rng = np.random.default_rng(3)
    hits = 0
    for index in range(120):
        found = estimate(draws(rng, processes, 16, variation, spread), draws(rng, processes, 16, variation, spread), KNOWN, index).interval
        hits += found.low <= 1 <= found.high
    assert hits >= 107  # 95 % of 120, minus three standard deviations of the count


def test_three_percent_are_seen_where_calls_are_long():
    rng = np.random.default_rng(4)
    seen = 0
    for index in range(100):
        slow = draws(rng, 3, 8, 0.003, 0.001, scale=1.03)
        seen += estimate(slow, draws(rng, 3, 8, 0.003, 0.001), KNOWN, index).interval.high < 1
    assert seen >= 99


def test_two_places_of_a_block_are_two_medians():
    """A call takes 6.2 ms with its tensors at one location and 6.8 ms at the other: the code is the same, and the interval must be narrow."""
    rng = np.random.default_rng(5)
    widths = []
    for index in range(40):
        sides = [[np.stack([rng.normal(6.2, 0.02, 8), rng.normal(6.8, 0.02, 8)], axis=1) for _ in range(3)] for _ in range(2)]
        for side in sides:  # each process has its own order of locations
            side[:] = [blocks[:, ::-1] if rng.random() < 0.5 else blocks for blocks in side]
        found = estimate(sides[0], sides[1], KNOWN, index).interval
        widths.append(found.high - found.low)
        assert abs(found.ratio - 1) < 0.01
    assert np.median(widths) < 0.01


def test_disturbed_calls_do_not_move_the_ratio():
    rng = np.random.default_rng(5)
    program, baseline = draws(rng, 1, 30, 0.01, 0), draws(rng, 1, 30, 0.01, 0)
    program[0][::4] *= 5
    found = estimate(program, baseline, KNOWN, 1).interval
    assert found.ratio == pytest.approx(1, abs=0.02) and found.low < 1 < found.high


def in_turn(rng, processes, blocks, common, own, spread, scales):
    """Returns samples in which most disturbances affect a whole turn: one list of samples for each of `scales`."""
    turns = np.abs(rng.standard_t(3, size=(blocks, 2))) * common
    sides = []
    for scale in scales:
        calls = [rng.standard_t(4, size=(blocks, 2)) * own * 0.8 for _ in range(processes)]
        sides.append([scale * np.exp(rng.normal(0, spread) + turns + call) for call in calls])
    return sides


@pytest.mark.parametrize(
    ("processes", "ratio"), [(3, 1.4), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 1.0), (3, 1.0), (3, 8.0)))]
)
def test_what_disturbs_a_whole_turn_widens_no_interval(processes, ratio):
    rng = np.random.default_rng(8)
    hits, halves = 0, []
    for index in range(100):
        program, baseline = in_turn(rng, processes, 30, 0.2, 0.02, 0.004, (1.0, ratio))
        found = estimate(program, baseline, KNOWN, index)
        hits += found.interval.low <= ratio <= found.interval.high
        halves.append(found.half)
    assert hits >= 88  # 95, minus three standard deviations of the count
    assert np.median(halves) < 0.03, "calls by themselves vary by 20 %"


@pytest.mark.slow
def test_what_disturbs_one_kind_in_a_turn_is_in_the_error():
    """The turns of both kinds are adjacent, with a pause between them: a host may be slow for three of the program's calls and not for eager's. That
    biases the estimate of the turn's common part, so turns are refitted to every draw of blocks."""
    rng = np.random.default_rng(13)
    ratios, errors = [], []
    for index in range(60):
        sides = in_turn(rng, 3, 40, 0.1, 0.02, 0.0, (1.0, 1.0))
        program, baseline = (
            [blocks * disturbed for blocks in side] for side, disturbed in zip(sides, np.exp(rng.normal(0, 0.05, (2, 40, 2))), strict=True)
        )
        found = estimate(program, baseline, Repeatability(least=0.0005, noise=0.02, weight=6), index)
        ratios.append(np.log(found.interval.ratio))
        errors.append(found.within)
    assert 0.9 < np.sqrt(np.mean(np.square(errors))) / np.std(ratios) < 1.2


def test_a_program_that_is_slow_in_less_than_half_of_its_turns_has_the_time_of_the_others():
    """Any median ignores a minority of slow turns, but here they affect all of the program's processes at the same time, and what the processes have
    in common must not be attributed to the host."""
    rng = np.random.default_rng(9)
    program, baseline = in_turn(rng, 3, 60, 0.05, 0.01, 0.001, (1.0, 2.0))
    turns = rng.random((60, 2))
    for share, ratio in ((0.3, 2.0), (0.7, 0.5)):
        found = estimate([blocks * np.where(turns < share, 4.0, 1.0) for blocks in program], baseline, KNOWN, 1).interval
        assert found.ratio == pytest.approx(ratio, rel=0.02)


def test_pairs_that_were_not_timed_together_have_no_turns_in_common():
    rng = np.random.default_rng(10)
    first, second = in_turn(rng, 2, 40, 0.2, 0.01, 0.001, (1.0, 1.2)), in_turn(rng, 1, 25, 0.2, 0.01, 0.001, (3.0, 3.6))
    program, baseline = [*first[0], *second[0]], [*first[1], *second[1]]
    found = estimate(program, baseline, KNOWN, 1, rounds=[0, 0, 1]).interval
    assert found.low < 1.2 < found.high and found.ratio == pytest.approx(1.2, rel=0.02)
    whole = estimate(program, baseline, KNOWN, 1, rounds=[0, 0, 1])
    assert whole.baseline_ms / whole.program_ms == pytest.approx(found.ratio), "the times are those that the ratio is of"
    with pytest.raises(ValueError, match="as many of both"):
        estimate(first[0], second[1], KNOWN, 1)


@pytest.mark.parametrize("together", [3, 1])
def test_a_host_that_is_slower_in_a_later_round_widens_no_interval(together):
    """Rounds consist of three pairs, or of one if the device cannot hold more: what is common to a round does not affect the ratios."""
    rng = np.random.default_rng(12)
    program, baseline, rounds = [], [], []
    for number in range(6 // together):
        slower = 1.0 + 0.4 * number
        first, second = in_turn(rng, together, 30, 0.1, 0.01, 0.002, (slower, 1.1 * slower))
        program, baseline, rounds = program + first, baseline + second, rounds + [number] * together
    found = estimate(program, baseline, KNOWN, 1, rounds)
    assert found.half < 0.01 and found.interval.low < 1.1 < found.interval.high
    differing = [blocks * factor for blocks, factor in zip(program, (0.9, 1.0, 1.1, 0.9, 1.0, 1.1), strict=True)]
    assert estimate(differing, baseline, KNOWN, 1, rounds).half > 0.04, "but how far processes lie apart is in it"


def test_the_level_of_a_process_stays_its_time():
    rng = np.random.default_rng(11)
    (calls,) = in_turn(rng, 4, 50, 0.3, 0.001, 0.0, (2.5,))
    logs = without_turns(calls)
    assert np.exp(np.median(logs, axis=1)) == pytest.approx(np.median(np.array(calls), axis=1), rel=0.02)
    assert logs.std(axis=1).max() < 0.003 < 0.1 < np.log(np.array(calls)).std(axis=1).min()


@pytest.mark.slow
@pytest.mark.parametrize("together", [3, 1])
def test_processes_that_differ_more_than_the_host_was_known_for(together):
    """A program may behave differently from those with which the host was calibrated: the evidence of three pairs then outweighs the calibration."""
    rng = np.random.default_rng(14)
    hits, rounds = 0, [0, 0, 0] if together == 3 else [0, 1, 2]
    for index in range(120):
        program, baseline = draws(rng, 3, 10, 0.01, 0.02), draws(rng, 3, 10, 0.01, 0.02)
        found = estimate(program, baseline, Repeatability(least=0.001, noise=0.2, weight=6), index, rounds).interval
        hits += found.low <= 1 <= found.high
    assert hits >= 105, "the past at its full weight: 70 % or so"


def test_one_process_is_as_uncertain_as_the_host():
    steady = [np.full((20, 2), 1.0)]
    sure = estimate(steady, steady, Repeatability(least=0.0005, noise=0.2, weight=6), 1)
    unsure = estimate(steady, steady, Repeatability(least=0.02, noise=0.2, weight=6), 1)
    assert unsure.between == pytest.approx(0.02 * 2**0.5) and unsure.interval.high > 1.04 > sure.interval.high


def test_students_quantiles():
    assert student(1) == pytest.approx(12.706) and student(4.9) == pytest.approx(2.776) and student(1e6) == pytest.approx(1.96)


@pytest.mark.slow
def test_a_calibration_finds_what_was_put_in():
    rng = np.random.default_rng(6)
    tasks = [summary(str(i), draws(rng, 6, 80, 0.08, 0.02)) for i in range(12)] + [
        summary(str(i), draws(rng, 6, 80, 0.002, 0.001)) for i in range(12)
    ]
    assert all((task.variation < VARIED) == (index >= 12) for index, task in enumerate(tasks))
    found = fit(tasks, "cuda")
    assert found.least == pytest.approx(0.001, rel=0.5) and found.spread(0.08) == pytest.approx(0.02, rel=0.5)
