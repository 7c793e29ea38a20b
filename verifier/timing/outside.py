"""Charges a program for the time outside its interval that exceeds eager's, because moving work elsewhere does not make it shorter.

Remembering results does not make work shorter either. If a call with newly drawn inputs takes longer than a call with inputs that the party has seen
except for one element, the extra time is also charged (`remembered`). A user's inputs are new each time, whereas the judge redraws the inputs of only
one call per series. Likewise, a call is shorter after a cache flush than without one only if a thread has read the inputs during the flush (`early`).

The time outside the interval has six parts. `around` is the time from the request until the inputs are handed over, and from the last call of a
series to its answer; a program's finalisers may run there. `ahead` lasts from the key of the inputs until they are unmasked; on a GPU, until the
caches are also flushed. On the CPU, a flush takes milliseconds, and two processes differ in its duration by more than a short call takes, so it is
not charged. `copied` lasts from the end until the outputs are copied. In a series, `between` lasts from there until the party waits for its next key,
and `lead` is the time by which lead-in calls exceed counted ones. `within` is the time by which the judge's clock exceeds the program-side clock.
Eager, which is timed in turn with the program, also has all these parts; only a difference of more than three standard errors counts.

A sample is the median of several calls. Work that does not depend on the inputs, such as allocating the outputs of later calls, could therefore be
done in every eighth call and would never be seen. `uneven` is the time by which the mean of consecutive calls exceeds their median.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verifier.timing.blocks import Side

CLOCK_SHARE, CLOCK_SLACK_NS = 0.10, 10_000
# Allowances: a multiple of eager's time, since the pages and caches of two processes differ, and nanoseconds per call. Work that a process does once
# per series depends mainly on its previous work; waking its threads takes place in the lead-in. What a series does once is also limited to the
# nanoseconds of `ONCE` per series, because the same allowance for each of six calls would let one call move six times as much.
GRANTED: dict[str, tuple[float, float]] = {"copied": (1.1, 0), "around": (1.25, 8_000), "lead": (1.25, 15_000), "uneven": (1.5, 1_000)}
ONCE = {"around": 30_000, "lead": 30_000}  # not yet measured on a GPU, where a CUDA graph's first launch after a pause may need more than eager's
WHOLE = ("lead", "uneven")  # parts of which everything beyond eager's is charged if it exceeds the allowance, which covers only honest differences
RARELY = ("around", "lead", "uneven")  # parts in which a program may work for more calls than those of one series
COPIES = GRANTED["copied"][0]
MOVED = 0.5  # share of the saving within the interval above which work outside it cannot be accidental
LEAST_NS = 1_000  # minimum duration of a call: the shim calls a Python function, which creates a tensor
SIDES = 2**0.5  # factor by which the uncertainty about one side is multiplied for the difference between two
CLAIM = 2.0  # speedup over eager above which the judge's clock must be steady enough to see the saving
PARTS = {
    "ahead": "work begins before the clock",
    "copied": "work goes on after the clock has stopped",
    "between": "work is done between calls",
    "around": "work is done before the inputs are handed over, or after the last call",
    "lead": "work is done in calls that do not count",
    "within": "the clock beside the program counts too little",
    "early": "calls are shorter if the cache flush gives its threads time with the inputs",
    "remembered": "calls with inputs that it has seen before are shorter",
    "uneven": "some calls do work that the others need",
}
APART = ("remembered", "around", "lead", "early", "uneven")  # parts that are not among the unscored time of a single call
LEAST_TURNS = 4  # minimum number of a side's turns that shows what the side remembers, and of groups that show how uneven its calls are
QUIET = 0.05  # share of eager's calls that other work may preempt on a quiet host
GROUP = 6  # minimum number of consecutive calls of which the mean is compared with the median; two calls have the same mean and median


@dataclass
class Laps:
    """A side's clock readings in nanoseconds, one per sample (for a series: the median of its counted calls)."""

    inner: list[int] = field(default_factory=list)  # the scored time
    wall: list[int] = field(default_factory=list)  # the interval by the judge's clock
    ahead: list[int] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)
    between: list[int] = field(default_factory=list)
    around: list[int] = field(default_factory=list)
    lead: list[int] = field(default_factory=list)
    early: list[int] = field(default_factory=list)  # for series with both kinds: a call without a cache flush minus the others
    remembered: list[int] = field(default_factory=list)  # for series with both kinds: a call with a new draw minus the others
    uneven: list[int] = field(default_factory=list)  # for each group of consecutive calls: the mean minus the median
    crowded: list[int] = field(default_factory=list)  # the same, over preempted calls too
    counted: int = 1  # number of counted calls in a series
    made: int = 0  # number of counted calls
    preempted: int = 0  # number of counted calls that other work on the host preempted
    _calm: list[int] = field(default_factory=list)
    _all: list[int] = field(default_factory=list)

    def level(self, times: Sequence[int], calm: Sequence[int]) -> None:
        """Adds the times of a turn's calls, in their order, to `crowded`, and those of its `calm` calls, which were not preempted, to `uneven`. Short
        turns are combined into groups of at least `GROUP` calls."""
        for group, some, found in ((self._calm, calm, self.uneven), (self._all, times, self.crowded)):
            group += some
            if len(group) >= GROUP:
                found.append(int(statistics.fmean(group) - statistics.median(group)))
                group.clear()

    def crowds(self, other: Laps) -> bool:
        """Returns whether these calls were preempted more often than those of another side, which were timed in turn and hardly ever preempted, so
        that chance does not explain it. It is then the program's own threads that wait for each other."""
        if not self.made or not other.made:
            return False
        share, usual = self.preempted / self.made, other.preempted / other.made
        whole = (self.preempted + other.preempted) / (self.made + other.made)
        error = (whole * (1 - whole) * (1 / self.made + 1 / other.made)) ** 0.5
        return usual <= QUIET and share - usual > 3 * error

    @property
    def within(self) -> list[int]:
        """Returns the time by which the judge's clock exceeds the shim's: a round trip, if both are right."""
        return [wall - inner for wall, inner in zip(self.wall, self.inner, strict=True)]

    def outside(self, copies: float = 1.0) -> list[float]:
        """Returns all unscored time. `between` is as long as the list of samples, or empty, since single calls have none."""
        between = self.between or [0] * len(self.inner)
        return [a + copies * c + b + w for a, c, b, w in zip(self.ahead, self.copied, between, self.within, strict=True)]


@dataclass(frozen=True)
class Charge:
    """Nanoseconds added to each of the program's calls, and the reason."""

    ns: float = 0.0
    part: str = ""  # a key of `PARTS`

    def message(self) -> str:
        return f"{self.ns / 1e6:.4f} ms are added to each call of the program: {PARTS[self.part]}, beyond what eager needs there" if self.ns else ""


def charge(program: Side, eager: Side) -> Charge:
    """Computes how much more time the program's calls need outside their interval than eager's do. It is the larger of two values: the sum over
    parts, since one part may naturally be shorter than eager's, and the total per call, since work may be hidden in a different place each time."""
    pairs = {name: (getattr(program.laps, name), getattr(eager.laps, name)) for name in PARTS}
    if program.laps.crowds(eager.laps):  # its preempted calls cannot be left out, because they may be the ones that work for the others
        pairs["uneven"] = program.laps.crowded, eager.laps.crowded
    least = {"remembered": LEAST_TURNS, "early": LEAST_TURNS, "uneven": LEAST_TURNS}
    pairs = {name: both for name, both in pairs.items() if min(map(len, both)) >= least.get(name, 1)}
    counted, longer = program.laps.counted, max(middle(program.laps.inner) / max(middle(eager.laps.inner), 1.0), 1.0)
    found: dict[str, float] = {}
    for name, pair in pairs.items():
        times, granted = GRANTED.get(name, (1.0, 0.0))
        granted = min(granted, ONCE[name] / counted) if name in ONCE else granted
        usual = longer if name == "uneven" else 1.0  # a busy host disturbs longer calls more
        more = 0.0 if name == "uneven" else _beyond(*pair, times, granted)
        more = max(more, _beyond_on_average(*pair, times * usual, granted) if name in RARELY else 0.0)
        if more and name in WHOLE:
            centre = statistics.fmean if name == "uneven" else middle
            more = max(more, centre(pair[0]) - usual * max(centre(pair[1]), 0.0))
        found[name] = more
    apart = sum(found.get(name, 0.0) for name in APART)
    together = _beyond(program.laps.outside(), eager.laps.outside(COPIES)) + apart
    most = max(sum(found.values()), together)
    if most <= 0:
        return Charge()
    return Charge(most, max(pairs, key=lambda name: (found[name], middle(pairs[name][0]) - middle(pairs[name][1]))))


def _beyond(ours: Sequence[float], theirs: Sequence[float], times: float = 1.0, granted: float = 0.0) -> float:
    """Returns the amount by which `ours` exceeds `theirs` multiplied by `times` plus `granted`, or 0 if chance explains the difference."""
    more = middle(ours) - times * max(middle(theirs), 0.0) - granted
    return more if more > _doubts(ours, theirs) else 0.0


def _beyond_on_average(ours: Sequence[float], theirs: Sequence[float], times: float, granted: float) -> float:
    """Returns the same for means, because a median does not see work that is done in every third series. Less than about nine rare delays in many
    series are within three standard errors."""
    if min(len(ours), len(theirs)) < LEAST_TURNS:
        return 0.0
    more = statistics.fmean(ours) - times * max(statistics.fmean(theirs), 0.0) - granted
    errors = sum(statistics.stdev(some) ** 2 / len(some) for some in (ours, theirs))
    return more if more > 3 * float(errors**0.5) else 0.0


def _doubts(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return float((doubt(ours) ** 2 + doubt(theirs) ** 2) ** 0.5)


def middle(values: Sequence[float]) -> float:
    """Returns the mean of two medians, one for each location of inputs and outputs, as in the score (`intervals.bootstrapped`)."""
    return (statistics.median(values[0::2]) + statistics.median(values[1::2])) / 2


def doubt(values: Sequence[float]) -> float:
    """Returns three standard errors of a median, estimated from the median deviation."""
    at = statistics.median(values)
    root: float = max(len(values), 1) ** 0.5
    return 3 * 1.25 * 1.4826 * statistics.median(abs(value - at) for value in values) / root


def clock_finding(program: Side, eager: Side) -> str:
    """Explains why the times are not trusted: the clock cannot be right, or most of a call's saving was moved out of its interval. Returns an empty
    string if they are trusted."""
    laps = program.laps
    inner, least = middle(laps.inner), min(laps.inner)
    if least < LEAST_NS:
        return f"the clock beside the program counts {least / 1e6:.3f} ms a call, the judge's {middle(laps.within) / 1e6:.3f} ms more"
    found = charge(program, eager)
    gain = middle(eager.laps.inner) - inner
    if found.part == "within" and found.ns > CLOCK_SHARE * inner + CLOCK_SLACK_NS:
        usual = middle(eager.laps.within)
        return (
            f"the clock beside the program counts {inner / 1e6:.3f} ms a call, the judge's {middle(laps.within) / 1e6:.3f} ms more "
            f"(eager: {usual / 1e6:.3f} ms)"
        )
    if gain > 0 and found.ns > max(MOVED * gain, CLOCK_SHARE * inner) + CLOCK_SLACK_NS:
        where = "due to what it remembers" if found.part == "remembered" else "spent outside the interval"
        told = f"of {gain / 1e6:.3f} ms that the program saves a call, {found.ns / 1e6:.3f} ms are {where}: {PARTS[found.part]}"
        doubts = _doubts(laps.outside(), eager.laps.outside())
        if found.ns > max(MOVED * gain, CLOCK_SHARE * inner) + CLOCK_SLACK_NS + doubts:
            return told
        return f"this host is busy: {told}, with an uncertainty of {doubts / 1e6:.3f} ms"
    apart = middle(laps.outside()) - middle(eager.laps.outside(COPIES))
    if claims(program, eager) and apart > MOVED * gain + CLOCK_SLACK_NS:  # chance may explain it, but then nothing is known about the saving
        doubts = _doubts(laps.outside(), eager.laps.outside())
        return (
            f"this host is busy: of {gain / 1e6:.3f} ms that the program saves a call, {apart / 1e6:.3f} ms seem to be spent outside the interval, "
            f"with an uncertainty of {doubts / 1e6:.3f} ms"
        )
    if claims(program, eager) and unsteady(eager) > gain:
        return (
            f"this host is busy: the program seems to save {gain / 1e6:.3f} ms a call, and the judge's clock is unsteady by "
            f"{unsteady(eager) / 1e6:.3f} ms"
        )
    return ""


def disturbed(sides: Sequence[Side], most: float) -> str:
    """Returns a message if other work occupied the processors during more than the fraction `most` of these sides' calls, or an empty string
    otherwise. If all sides are baselines, the host is responsible, since the programs are frozen during their calls."""
    share = sum(side.laps.preempted for side in sides) / max(sum(side.laps.made for side in sides), 1)
    return f"this host is busy: other work took the processors in {share:.0%} of the calls" if share > most else ""


def busy(pairs: Sequence[tuple[Side, Side]], ratio: float, most: float) -> str:
    """Explains why a program that seems `ratio` times as fast as eager is not called faster on this host; returns an empty string if it is. Either
    more than a share `most` of the programs' and eager's calls were preempted, or the quicker calls do not agree with the typical ones."""
    if said := disturbed([side for pair in pairs for side in pair], most):
        return said
    quiet = [low(eager.laps.inner) / max(low(program.laps.inner) + program.charged.ns, 1.0) for program, eager in pairs]
    middle_of_them = statistics.median(quiet)
    if ratio > 1 > middle_of_them:
        quiet_ratio = f"by the quickest quarter {middle_of_them:.2f}"
        return f"this host is busy: by the middle of all calls the program is {ratio:.2f} times as fast as eager, {quiet_ratio}"
    return ""


def low(values: Sequence[float]) -> float:
    """Returns the lower quartile."""
    return statistics.quantiles(values, n=4)[0] if len(values) > 1 else float(values[0])


def claims(program: Side, eager: Side) -> bool:
    """Returns whether the program seems so much faster that the judge's clock must be steady enough to see it."""
    inner, usual = middle(program.laps.inner), middle(eager.laps.inner)
    return usual >= CLAIM * inner and usual - inner > 2 * CLOCK_SLACK_NS


def unsteady(eager: Side) -> float:
    """Returns the possible error, in nanoseconds, of a program's saving as measured by the judge's clock."""
    return SIDES * doubt(eager.laps.within)
