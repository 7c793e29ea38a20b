"""Several strategies that one change carries out together, under one name: "fuse-block + vectorise". The ledger credits them together."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agents.strategies.catalogue import by_name
from agents.strategies.strategy import Strategy

JOINT = " + "
LONGEST = 60  # characters that a strategy's name has room for, in events and tables


def parts(name: str) -> tuple[str, ...]:
    """Splits a combination into its names; a plain name is its only part."""
    return tuple(filter(None, (part.strip() for part in name.split(JOINT.strip()))))


def strategies_of(name: str) -> list[Strategy]:
    """Those of the catalogue that a name or a combination stands for."""
    return [strategy for part in parts(name) if (strategy := by_name(part)) is not None]


def combined(names: Iterable[str]) -> str:
    """One name for several, each once, in their order, as many as there is room for; what the catalogue does not have is left out."""
    kept: list[str] = []
    for name in dict.fromkeys(strategy.name for given in names for strategy in strategies_of(given)):
        if len(JOINT.join([*kept, name])) <= LONGEST:
            kept.append(name)
    return JOINT.join(kept)


def named(said: str) -> str:
    """What a person or a model wrote where one strategy or several are asked for: "`a`, b and c" is "a + b + c"."""
    return combined(re.split(r"\s*(?:\+|,|;|&|/|\band\b)\s*", re.sub(r"[`'\"*]", "", said).strip(" .").lower()))
