"""What moves will probably bring: what they promise, as far as their strategies kept such promises before."""

from __future__ import annotations

from collections.abc import Callable

from agents.roles.situation import Situation
from agents.strategies.ledger import Record, joined, kept
from compiler.options import Move


def trusted(situation: Situation) -> Callable[[Move], float]:
    """The gain that a move will probably bring, by the records of earlier runs on this kind of device and of this one."""
    known = dict(situation.records)
    for attempt in situation.attempts:
        unknown = attempt.report is None or attempt.report.status == "inconclusive" or (attempt.passed and attempt.gain is None)
        if attempt.expected is None or attempt.base is None or unknown:
            continue
        realised = attempt.gain.ratio if attempt.gain is not None else None
        known = joined(known, {attempt.edit.strategy: Record(tried=1, kept=kept(attempt.expected, realised))})
    return lambda move: known.get(move.strategy, Record()).likely(move.expected_speedup)
