"""What moves and nodes of a tree will probably bring: what they promise, as far as their strategies kept such promises before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agents.memory.within import realised
from agents.roles.situation import Attempt, Situation
from agents.strategies.ledger import Record, kept
from compiler.options import Move

UNMEASURED = ("inconclusive", "infrastructure_error")


def trusted(situation: Situation) -> Callable[[Move], float]:
    """The gain that a move will probably bring, by the records of earlier runs on this kind of device and of this one."""
    known = learned(situation.records, (a for a in situation.attempts if a.expected is not None and a.base is not None))
    return lambda move: known.get(move.strategy, Record()).likely(move.expected_speedup)


def learned(records: Mapping[str, Record], attempts: Iterable[Attempt]) -> dict[str, Record]:
    """The records with what these attempts add, by the strategies that they name. What could not be measured adds nothing."""
    known = dict(records)
    for attempt in attempts:
        gain = realised(attempt)
        if attempt.report is None or attempt.report.status in UNMEASURED or (attempt.passed and gain is None):
            continue
        name = attempt.edit.strategy
        known[name] = known.get(name, Record()).plus(Record(tried=1, kept=kept(attempt.expected, gain)))
    return known
