"""What a run may spend and has spent, in every unit at once. Reserve before a call, spend after it; limits may be raised meanwhile."""

from __future__ import annotations

from pydantic import BaseModel

from agents.settings import Budget


class Spent(BaseModel):
    candidates: int = 0
    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    verifier_seconds: float = 0.0
    seconds: float = 0.0  # while running, pauses left out


UNITS = {
    "candidates": "programs",
    "calls": "model calls",
    "tokens": "tokens",
    "dollars": "dollars",
    "verifier_seconds": "seconds of verifier time",
    "seconds": "seconds",
}


class OutOfBudget(Exception):
    """A call that was not begun, because one unit would not last."""

    def __init__(self, unit: str, spent: float, limit: float):
        super().__init__(f"the budget of {limit:g} {UNITS[unit]} is spent ({spent:.4g} used)")
        self.unit, self.spent, self.limit = unit, spent, limit


class Ledger:
    """Reservations of calls in flight count as spent, so that parallel workers together cannot overshoot by more than those calls."""

    def __init__(self, limits: Budget):
        self.limits = limits
        self.spent = Spent()
        self._reserved = Spent()

    def reserve(self, amounts: dict[str, float], keep: dict[str, float] | None = None) -> dict[str, float]:
        """Set `amounts` aside or raise `OutOfBudget`. `keep` is what must remain afterwards, such as for confirming the winner.

        An amount is an estimate and may be 0: a unit that the call needs and that is used up is refused even then. Units that the call
        does not name are not its concern, wall time apart.
        """
        for unit in UNITS:
            limit = getattr(self.limits, unit)
            if limit is None or not (unit in amounts or unit == "seconds" or unit in (keep or {})):
                continue
            used = getattr(self.spent, unit) + getattr(self._reserved, unit)
            wanted = amounts.get(unit, 0) + (keep or {}).get(unit, 0)
            if used >= limit or used + wanted > limit:
                raise OutOfBudget(unit, used, limit)
        self._add(self._reserved, amounts, 1)
        return amounts

    def release(self, amounts: dict[str, float]) -> None:
        self._add(self._reserved, amounts, -1)

    def spend(self, amounts: dict[str, float]) -> None:
        self._add(self.spent, amounts, 1)

    def raise_limits(self, limits: dict[str, float | None]) -> None:
        """Limits by unit; null lifts one. A lower value than the present one is left out: a budget is raised, not cut."""
        known = {}
        for unit, value in limits.items():
            if unit not in UNITS or (value is not None and not isinstance(value, (int, float))):
                continue
            present = getattr(self.limits, unit)
            if present is not None and (value is None or value > present):
                known[unit] = value
        self.limits = Budget.model_validate({**self.limits.model_dump(), **known})

    @staticmethod
    def _add(total: Spent, amounts: dict[str, float], sign: int) -> None:
        for unit, amount in amounts.items():
            setattr(total, unit, getattr(total, unit) + sign * amount)
