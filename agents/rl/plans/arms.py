"""The searches to compare. Each yields a curve: the share of the best known speed reached after each program.

`random` and `descend` are the arena's own workflows, run on the real engine. In the arena, a point uses up one program of the budget even if it
generates a program that was measured before, whereas a real run never measures identical programs twice. Results are therefore given for both methods
of counting. For the policy, repeats are free.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import geometric_mean

import numpy as np

from agents.arena.landscape import PASSED
from agents.arena.model import QUALITIES
from agents.arena.played_verifier import Verified
from agents.arena.race import logged
from agents.moving.features import Seen
from agents.moving.known import Search
from agents.moving.scorer import Scorer
from agents.rl.plans.episodes import Course, Episode
from agents.settings import Budget
from agents.strategies.ledger import Record, joined, kept

Curve = list[float]
Pick = Callable[[Search, Seen], int]  # the index of a move
MOST_REPEATS = 3  # number of programs, including repeats, that a workflow may request, as a multiple of the budget
WEIGHT = 10.0  # weight, in tries, of a strategy's record on other tasks, in addition to the tries of the search itself
TEMPERATURE = 0.3  # temperature for drawing moves from the policy
SAMPLED = 10  # the ledger is filled with single changes to this many points per task, in addition to the compiler's own


def workflow(course: Course, name: str, seed: int, programs: int, repeats_free: bool) -> Curve:
    """Runs an arena workflow that does not use a model. If repeats are free, its budget grows until it has tried `programs` distinct programs."""
    asked = programs
    while True:
        quick = played(course, name, seed, asked)
        counted = distinct(course, quick) if repeats_free else quick
        missing = programs - len(counted)
        if not repeats_free or missing <= 0 or asked >= MOST_REPEATS * programs or len(quick) < asked:
            return curve(course, counted, programs)
        asked = min(asked + missing, MOST_REPEATS * programs)


@lru_cache(maxsize=2048)
def played(course: Course, name: str, seed: int, programs: int) -> list[Verified]:
    """Returns the verifications of one arena play. They are cached because both methods of counting start from the same play."""
    quality, budget = QUALITIES["middling"], Budget(candidates=programs)  # a quality is required, although none of these workflows uses a model
    _, log = asyncio.run(logged(course.landscape, name, seed, quality, budget))
    return [one for one in log if one.tier == "quick"]


def distinct(course: Course, log: Sequence[Verified]) -> list[Verified]:
    """Returns the log without repeated programs."""
    first: dict[int, Verified] = {}
    for one in log:
        first.setdefault(course.landscape.program[one.point], one)
    return list(first.values())


def curve(course: Course, log: Sequence[Verified], programs: int) -> Curve:
    """Returns the curve, based on the table's times, of the program that is best according to the workflow's own measurements. A search that ends
    early keeps its last value."""
    held, measured, shares = course.landscape.eager_us, float("inf"), []
    for one in log[:programs]:
        if one.status == "passed" and one.measured_us is not None and one.measured_us < measured:
            measured, held = one.measured_us, min(course.landscape.time(one.point), course.landscape.eager_us)
        shares.append(course.best / held)
    return padded(shares or [course.best / held], programs)


def padded(shares: Sequence[float], programs: int) -> Curve:
    return [*shares, *[shares[-1]] * (programs - len(shares))]


def searched(course: Course, pick: Pick, seed: int, programs: int) -> Curve:
    """Runs a search in which `pick` chooses every move. The search ends when no move is left."""
    episode = Episode(course, f"evaluate:{seed}", programs)
    while not episode.over and (seen := episode.see()).targets:
        episode.take(seen.targets[pick(episode.search, seen)])
    return padded(episode.shares, programs)


def by_policy(scorer: Scorer, seed: int = 0, temperature: float = 0.0) -> Pick:
    """Returns a picker that follows the policy's preferences. At temperature 0 it always picks the preferred move; otherwise it samples, so moves
    that are nearly as good are also tried."""
    draw = np.random.default_rng(seed)

    def pick(search: Search, seen: Seen) -> int:
        preferences = scorer.score(seen)[0]
        return int(np.argmax(preferences + temperature * draw.gumbel(size=len(preferences))))

    return pick


def by_ledger(of_others: dict[str, Record], seed: int) -> Pick:
    """Picks changes to the fastest program in the order of their strategies' success on other tasks and in this search. Ties are broken at random."""
    draw = random.Random(f"ledger:{seed}")

    def pick(search: Search, seen: Seen) -> int:
        known = joined(weighted(of_others), own_records(search))
        moves = np.flatnonzero(seen.bases == 0) if (seen.bases == 0).any() else np.arange(len(seen.targets))
        trust = [known.get(strategy_of(search, seen, int(place)), Record()).trust for place in moves]
        best = max(trust)
        return int(draw.choice([place for place, value in zip(moves, trust, strict=True) if value == best]))

    return pick


def weighted(records: dict[str, Record]) -> dict[str, Record]:
    """Returns the records scaled down to at most WEIGHT tries each. Otherwise, a ledger with hundreds of tries would outweigh the search itself."""
    kept_ = {name: (record, min(1.0, WEIGHT / max(record.tried, 1))) for name, record in records.items()}
    return {name: Record(tried=round(record.tried * scale), kept=record.kept * scale) for name, (record, scale) in kept_.items()}


def strategy_of(search: Search, seen: Seen, place: int) -> str:
    """Returns the strategy of the choice that distinguishes the target from its base."""
    base = seen.known[int(seen.bases[place])]
    changed = next(number for number, (a, b) in enumerate(zip(base, seen.targets[place], strict=True)) if a != b)
    return search.facts.choices[changed].strategy


def own_records(search: Search) -> dict[str, Record]:
    """Returns the record of this search's programs. Each is compared with the fastest earlier program that differs from it in one choice."""
    found: dict[str, Record] = {}
    for number, one in enumerate(search.tried):
        near = [e for e in search.tried[:number] if e.us and sum(a != b for a, b in zip(e.point, one.point, strict=True)) == 1]
        if near:
            base = min(near, key=lambda e: e.us or 0.0)
            changed = next(at for at, (a, b) in enumerate(zip(base.point, one.point, strict=True)) if a != b)
            name = search.facts.choices[changed].strategy
            gain = base.us / one.us if base.us and one.us else None
            found[name] = found.get(name, Record()).plus(Record(tried=1, kept=kept(None, gain)))
    return found


def ledger_of(courses: Sequence[Course], seed: int) -> dict[str, Record]:
    """Returns the record of single changes on these tasks, starting from the compiler's own program and from random points."""
    found: dict[str, Record] = {}
    for course in courses:
        landscape, draw = course.landscape, random.Random(f"ledger:{seed}:{course.landscape.name}")
        indices = [landscape.index(landscape.default), *draw.sample(range(len(landscape)), min(SAMPLED, len(landscape)))]
        for index in (one for one in indices if landscape.status[one] == PASSED):
            point = landscape.point(index)
            for axis, value in (move for move in landscape.neighbours(point) if point[move[0]] == landscape.axes[move[0]].default):
                there = index + (value - point[axis]) * landscape.strides[axis]
                us = landscape.us[there] if landscape.status[there] == PASSED else None
                gain = landscape.time(index) / us if us else None
                name = course.facts.choices[axis].strategy
                found[name] = found.get(name, Record()).plus(Record(tried=1, kept=kept(None, gain)))
    return found


def share_at(curves: Sequence[Curve], programs: int) -> float:
    """Returns the geometric mean over seeds."""
    return geometric_mean([curve[programs - 1] for curve in curves])
