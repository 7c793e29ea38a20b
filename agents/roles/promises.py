"""The probable gains of moves and tree nodes: their promised gains, adjusted by how well their strategies kept earlier promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agents.memory.within import realised
from agents.roles.situation import Attempt, Situation
from agents.strategies.ledger import Record, kept
from compiler.options import Move

UNMEASURED = ("inconclusive", "infrastructure_error")


def trusted(situation: Situation) -> Callable[[Move], float]:
    """Returns the probable gain of a move, based on records from this run and from earlier runs on this kind of device."""
    known = learned(situation.records, (a for a in situation.attempts if a.expected is not None and a.base is not None))
    return lambda move: known.get(move.strategy, Record()).likely(move.expected_speedup)


def learned(records: Mapping[str, Record], attempts: Iterable[Attempt]) -> dict[str, Record]:
    """Returns the records with these attempts added under the strategies that they name. Attempts that were not measured add nothing."""
    known = dict(records)
    for attempt in attempts:
        gain = realised(attempt)
        if attempt.report is None or attempt.report.status in UNMEASURED or (attempt.passed and gain is None):
            continue
        name = attempt.edit.strategy
        known[name] = known.get(name, Record()).plus(Record(tried=1, kept=kept(attempt.expected, gain)))
    return known
