"""Work that a program does outside its timed interval is charged to it; if this is most of the call, the measurement is not believed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from verifier.timing.blocks import Side
from verifier.timing.call import Call
from verifier.timing.outside import charge, clock_finding
from verifier.timing.series import Use, _share

US = 1000


def side(inner: int, ahead: int, copied: int, jitter: int = 20 * US, extra: int = 0, unsteady: int = 1, calls: int = 40) -> Side:
    """Builds a side with its calls, from times in microseconds. `extra`: the judge's excess over the shim's clock and the round trip, which varies by
    up to `unsteady`."""
    draws = random.Random(inner + ahead + copied)
    made = Side(None, None)  # type: ignore[arg-type]
    for _ in range(calls):
        noise = [draws.randrange(jitter) for _ in range(3)]
        made.laps.inner.append(inner * US + noise[0])
        made.laps.wall.append(made.laps.inner[-1] + (40 + extra + draws.randrange(unsteady)) * US)
        made.laps.ahead.append(ahead * US + noise[1])
        made.laps.copied.append(copied * US + noise[2])
    made.round_trip = 40 * US
    return made


def lying(side: Side, count: Callable[[int], int], ahead: Callable[[int], int] = lambda at: 0, after: Callable[[int], int] = lambda at: 0) -> Side:
    """Returns the same calls after the program-side clock has undercounted each by `count` microseconds, or after they have begun early or ended
    late."""
    for at in range(len(side.laps.inner)):
        side.laps.inner[at] -= (count(at) + ahead(at) + after(at)) * US
        side.laps.wall[at] -= (ahead(at) + after(at)) * US
        side.laps.ahead[at] += ahead(at) * US
        side.laps.copied[at] += after(at) * US
    return side


def in_series(side: Side, between: int) -> Side:
    draws = random.Random(between)
    side.laps.between = [between * US + draws.randrange(5 * US) for _ in side.laps.inner]
    return side


EAGER = side(inner=800, ahead=12_000, copied=300)


def test_a_program_that_is_faster_is_believed():
    assert clock_finding(side(400, 12_000, 300), EAGER) == ""
    assert clock_finding(side(400, 12_050, 420), EAGER) == ""  # outputs that are colder in the cache
    assert clock_finding(side(1600, 12_400, 300), EAGER) == ""  # slower, so nothing is gained


@pytest.mark.parametrize(("ahead", "copied", "between"), [(200, 0, 0), (0, 200, 0), (0, 0, 200), (70, 70, 70)])
def test_what_is_needed_outside_is_added_to_the_call(ahead, copied, between):
    """A quarter of eager's time is hidden, which is less than what counts as moved."""
    eager = in_series(side(800, 100, 300), 50)
    found = charge(in_series(side(200, 100 + ahead, 300 + copied), 50 + between), eager)
    assert 0.8 * 200 < found.ns / US < 1.2 * 210 and found.part


def test_an_honest_program_is_charged_nothing_most_of_the_time():
    charged = [charge(side(400, 12_000 - seed, 300), side(800, 12_000 + seed, 300)).ns for seed in range(40)]
    assert sum(ns > 0 for ns in charged) <= 2


@pytest.mark.parametrize(
    ("program", "words"), [(side(2, 12_800, 300), "begins before the clock"), (side(2, 12_000, 1_100), "goes on after the clock")]
)
def test_a_call_that_was_only_moved_is_not(program, words):
    assert words in clock_finding(program, EAGER)


def test_a_clock_that_counts_too_little_is_seen_on_a_busy_machine():
    """The program is allowed one and a half times what a busy machine adds to eager's round trip: here, that allowance alone would cover a clock that
    counts only half."""
    busy = side(800, 12_000, 300, extra=1000)
    assert "counts" in clock_finding(side(400, 12_000, 300, extra=1400), busy)
    assert clock_finding(side(400, 12_000, 300, extra=1010), busy) == ""


def test_a_judge_whose_clock_is_unsteady_believes_no_claim():
    unsteady = side(800, 12_000, 300, extra=1000, unsteady=4000)
    assert "unsteady" in clock_finding(side(100, 12_000, 300, extra=1000, unsteady=4000), unsteady)
    assert clock_finding(side(700, 12_000, 300, extra=1000, unsteady=4000), unsteady) == ""  # its claim is small


def test_moved_work_that_noise_half_hides_leaves_the_verdict_open():
    """On a busy host, the doubts are as large as the saving: the program is not refused, but it is not called faster either."""
    noisy = side(800, 12_000, 300, jitter=3000 * US, calls=60)
    program = side(1, 12_000, 300 + 2100, jitter=3000 * US, calls=60)
    program.laps.inner[:] = [(1 + at % 7) * US for at in range(60)]
    program.laps.wall[:] = [inner + 40 * US for inner in program.laps.inner]
    said = clock_finding(program, noisy)
    assert said.startswith("this host is busy: of ") and "goes on after the clock" in said and "with an uncertainty of" in said
    assert clock_finding(side(400, 12_000, 300, jitter=3000 * US, calls=60), side(800, 12_000, 300, jitter=3000 * US, calls=60)) == ""


def test_no_call_takes_no_time():
    assert "counts 0.000 ms a call" in clock_finding(side(0, 12_000, 300, jitter=1, extra=1100), side(800, 12_000, 300, extra=5000))


@pytest.mark.parametrize("calls", [16, 40, 200])
def test_a_round_trip_that_the_program_draws_out_buys_no_time(calls):
    eager = side(5_000, 12_000, 300, calls=calls)
    program = lying(side(5_000, 12_000, 300, calls=calls), count=lambda at: 4_000)
    program.round_trip += 4_000 * US
    assert "counts" in clock_finding(program, eager)


@pytest.mark.parametrize("calls", [16, 40])
def test_a_clock_that_lies_at_one_of_two_places(calls):
    """The score is the mean over both locations of a call's tensors: undercounting two fifths of all calls halves it."""
    eager = side(5_000, 12_000, 300, calls=calls)
    program = lying(side(5_000, 12_000, 300, calls=calls), count=lambda at: 4_980 if at % 2 and at % 10 != 1 else 0)
    assert clock_finding(program, eager) != ""


@pytest.mark.parametrize("calls", [16, 48, 200])
def test_work_that_hides_in_another_place_each_time(calls):
    eager = side(5_000, 12_000, 300, calls=calls)
    hides = [lambda at, k=k: 4_400 if at // 2 % 3 == k else 0 for k in range(3)]
    assert "outside the interval" in clock_finding(lying(side(5_000, 12_000, 300, calls=calls), *hides), eager)


def test_a_busy_machine_hides_no_lie_that_the_judges_clock_could_see():
    """Unsteadiness before a call, while caches are flushed, says nothing about the interval itself."""
    eager = side(300, 12_000, 300, jitter=900 * US, extra=1_000, unsteady=30, calls=16)
    eager.laps.inner = [300 * US] * 16
    eager.laps.wall = [inner + (1_040 + at % 7) * US for at, inner in enumerate(eager.laps.inner)]
    program = side(300, 12_000, 300, jitter=900 * US, calls=16)
    program.laps.inner, program.laps.wall = [100 * US] * 16, list(eager.laps.wall)
    assert "the clock beside the program counts" in clock_finding(program, eager)


@pytest.mark.parametrize(("slow", "fast"), [(20, 8), (60, 20), (300, 100)])
def test_small_calls_of_an_honest_program_are_believed(slow, fast):
    for seed in range(20):
        eager = side(slow, 12_000 + seed, 300, jitter=10 * US, unsteady=40, calls=16)
        assert clock_finding(side(fast, 12_000 - seed, 300, jitter=10 * US, unsteady=40, calls=16), eager) == ""


def remembering(side: Side, shorter: int, turns: int = 40) -> Side:
    """Returns the same calls, but those with inputs that the program has already seen are this many microseconds shorter than those with new ones."""
    draws = random.Random(shorter * 1000 + turns)
    side.laps.remembered = [shorter * US + draws.randrange(-20 * US, 20 * US) for _ in range(turns)]
    return side


def test_what_a_program_remembers_is_charged_and_is_no_saving():
    eager = remembering(side(800, 100, 300), 0)
    found = charge(remembering(side(300, 100, 300), 200), eager)
    assert 170 < found.ns / US < 230 and found.part == "remembered"
    assert "due to what it remembers" in clock_finding(remembering(side(100, 100, 300), 700), eager)
    assert not clock_finding(remembering(side(300, 100, 300), 200), eager), "most of it is saved with new inputs too"


def test_few_series_say_nothing_about_what_a_program_remembers():
    eager = remembering(side(800, 100, 300), 0)
    assert charge(remembering(side(100, 100, 300), 700, turns=3), eager).part != "remembered"


def test_an_honest_program_is_hardly_ever_charged_for_remembering():
    charged = [
        charge(remembering(side(400, 12_000, 300), 0, turns=16 + seed % 7), remembering(side(800, 12_000, 300), 0, turns=17 + seed % 5)).part
        for seed in range(40)
    ]
    assert charged.count("remembered") <= 1


def around(side: Side, once: int, lead: int) -> Side:
    """Returns the same calls in series, with this much once-per-series work and extra time in lead-in calls (in microseconds per call)."""
    draws = random.Random(once + lead)
    side = in_series(side, 50)
    side.laps.around = [once * US + draws.randrange(20 * US) for _ in side.laps.inner]
    side.laps.lead = [lead * US + draws.randrange(20 * US) for _ in side.laps.inner]
    side.laps.counted = 6
    return side


@pytest.mark.parametrize(
    ("once", "lead", "least", "words"),
    [
        (200, 30, 0, ""),
        (230, 40, 0, ""),  # colder caches, after everything that the process did before
        (500, 30, 200, "before the inputs are handed over"),
        (200, 330, 250, "in calls that do not count"),
        (200, -50, 0, ""),
    ],
)
def test_nor_is_work_free_in_what_a_series_does_once(once, lead, least, words):
    """A finaliser runs when the process collects garbage; a lead-in call is recognised by what was done just before it."""
    eager, program = around(side(800, 100, 300), 200, 30), around(side(400, 100, 300), once, lead)
    found = charge(program, eager)
    assert (found.ns == 0) is (not words) and found.ns >= least * US and words in found.message()


@pytest.mark.parametrize(("counted", "free"), [(1, True), (2, True), (6, False)])
def test_what_is_granted_to_a_lead_in_call_is_granted_once_per_series(counted, free):
    """A first call that clears the outputs of seven others shortens six counted calls by 12 us."""
    eager, program = around(side(400, 100, 300, jitter=US), 200, 0), around(side(388, 100, 300, jitter=US), 200, 12)
    for one in (eager, program):
        one.laps.counted = counted
        one.laps.lead = [ns % US + 12 * US * (one is program) for ns in one.laps.around]
    found = charge(program, eager)
    assert (found.ns == 0) is free and (free or (found.part == "lead" and 11 * US <= found.ns <= 13 * US))


def series_of(inner: Callable[[int], int], turns: int = 30, counted: int = 6, looked: int = -1, queued: Callable[[int], int] = lambda at: 0) -> Side:
    """Builds a side from series; call n takes `inner(n)` microseconds and up to 2 more, and its threads wait for `queued(n)` microseconds. Two
    lead-in calls that do not count precede each series."""
    draws, made, number = random.Random(turns + counted), Side(None, None), 0  # type: ignore[arg-type]
    use = Use(None, None, True, new=False)  # type: ignore[arg-type]
    for _ in range(turns):
        number += 2
        times = [(inner(number + at) * US + draws.randrange(2 * US), queued(number + at) * US) for at in range(counted)]
        calls = [
            Call(ns, ns, 10, 10, None, [], [], None, [], in_series=counted > 1, use=use, looked=at == looked, queued=wait)
            for at, (ns, wait) in enumerate(times)
        ]
        number += counted
        made.add(calls)
    return made


@pytest.mark.parametrize(("every", "counted", "turns"), [(4, 6, 30), (8, 6, 30), (16, 6, 60), (8, 2, 60), (4, 1, 120)])
def test_work_for_later_calls_in_every_eighth_call_is_charged(every, counted, turns):
    """The median of six calls does not see the call that clears the outputs of the next ones."""
    eager = series_of(lambda at: 50, turns, counted)
    program = series_of(lambda at: 20 + (15 * every if at % every == 3 else 0), turns, counted)
    found = charge(program, eager)
    assert found.part == "uneven" and found.ns > 8 * US and "some calls do work that the others need" in found.message()


def test_a_large_saving_is_not_believed_if_it_may_be_outside_the_interval():
    """On a busy host, chance may explain most of what a call needs after the clock; the saving is then unknown."""
    eager, program = side(1_000, 100, 300, jitter=4_000 * US, calls=12), side(100, 100, 1_500, jitter=4_000 * US, calls=12)
    eager.laps.inner, program.laps.inner = [1_000 * US] * 12, [100 * US] * 12
    eager.laps.wall, program.laps.wall = [1_040 * US] * 12, [140 * US] * 12
    assert charge(program, eager).ns == 0 and "seem to be spent outside the interval" in clock_finding(program, eager)
    assert clock_finding(side(100, 100, 300), side(1_000, 100, 300)) == ""


def test_a_program_does_not_preempt_itself():
    """Its own threads crowd out the call that works for the next seven. On a busy host, eager's calls are preempted too."""
    program = series_of(lambda at: 600 if at % 8 == 3 else 20, queued=lambda at: 500 if at % 8 == 3 else 0)
    found = charge(program, series_of(lambda at: 50))
    assert found.part == "uneven" and found.ns > 50 * US
    busy = series_of(lambda at: 600 if at % 8 == 5 else 50, queued=lambda at: 500 if at % 8 == 5 else 0)
    assert charge(program, busy).part != "uneven"
    assert charge(series_of(lambda at: 20), series_of(lambda at: 50)).ns == 0


def test_work_for_several_series_in_one_lead_in_call_is_charged():
    eager, program = around(side(400, 100, 300, calls=60), 200, 0), around(side(388, 100, 300, calls=60), 200, 0)
    program.laps.lead = [ns + (120 * US if at % 3 == 0 else 0) for at, ns in enumerate(program.laps.lead)]
    found = charge(program, eager)
    assert found.part == "lead" and 30 * US < found.ns < 40 * US


def test_an_even_program_is_not_charged_for_what_disturbs_some_calls():
    spiked = random.Random(5)
    for busy in (0, 40):
        for _ in range(20):
            eager, program = (series_of(lambda at, us=us, busy=busy: us + (busy if spiked.random() < 0.1 else 0)) for us in (50, 20))
            assert charge(program, eager).part != "uneven"
    once = series_of(lambda at: 20 + (5_000 if at == 2 else 0))
    assert charge(once, series_of(lambda at: 50)).part != "uneven", "a single long call is no habit"


def test_a_slower_program_is_as_uneven_as_its_calls_are_long():
    jitter = random.Random(3)
    eager, program = (series_of(lambda at, us=us: us + int(us * jitter.expovariate(3))) for us in (50, 200))
    assert charge(program, eager).part != "uneven"


def test_each_counted_call_bears_its_part_of_what_its_series_did_once():
    calls = [Call(inner, inner, 0, 0, None, [], [], None, [], in_series=True, use=Use(None, None, inner < 100)) for inner in (500, 130, 30, 32, 28)]
    _share(calls, 900)
    assert [(call.around, call.lead) for call in calls] == [(0, 0)] * 2 + [(300, (470 + 100) // 3)] * 3


def test_a_call_that_is_shorter_after_a_flush_than_without_one_was_begun_during_it():
    eager, program = in_series(side(800, 100, 300), 50), in_series(side(100, 100, 300), 50)
    eager.laps.early, program.laps.early = [-200 * US] * 6, [(400 + at) * US for at in range(6)]
    found = charge(program, eager)
    assert 390 * US < found.ns < 410 * US and "cache flush" in found.message()
    program.laps.early = [-at * US for at in range(6)]
    assert not charge(program, eager).ns


def test_what_a_program_remembers_shows_in_inspected_calls_too():
    """One of the two counted calls may be inspected, which leaves nothing to compare the other one with."""
    made = Side(None, None)  # type: ignore[arg-type]
    for looked in (True, False):
        uses = [Use(None, None, True, new=new) for new in (True, False)]
        calls = [Call(inner, inner, 0, 0, None, [], [], None, [], in_series=True, use=use) for inner, use in zip((900, 30), uses, strict=True)]
        calls[0].looked = looked
        made.add(calls)
    assert made.laps.remembered == [870, 870]


def test_a_call_with_warm_caches_counts_only_beside_the_others():
    made = Side(None, None)  # type: ignore[arg-type]
    calls = [
        Call(inner, inner, 0, 0, None, [], [], None, [], in_series=True, use=Use(None, None, True, warm=inner == 90)) for inner in (30, 90, 32, 31)
    ]
    assert made.add(calls) == pytest.approx(31e-6) and made.laps.early == [59] and made.laps.made == 3
