"""Several strategies that one change carries out together, under one name: "fuse-block + vectorise". The ledger credits them together."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agents.strategies.catalogue import by_name
from agents.strategies.strategy import Strategy

JOINT = " + "
HEADER = 20_000  # number of characters at the start of a program that are searched for its header
LONGEST = 120  # maximum length of a strategy's name in events and tables, in characters


def parts(name: str) -> tuple[str, ...]:
    """Splits a combination into its names. A plain name is returned as the only part."""
    return tuple(filter(None, (part.strip() for part in name.split(JOINT.strip()))))


def strategies_of(name: str) -> list[Strategy]:
    """Returns the catalogue strategies that a name or a combination stands for."""
    return [strategy for part in parts(name) if (strategy := by_name(part)) is not None]


def combined(names: Iterable[str]) -> str:
    """Returns one name for several strategies. It lists each strategy once, in order, and leaves out those that do not fit. Names that are not in the
    catalogue are left out."""
    kept: list[str] = []
    for name in dict.fromkeys(strategy.name for given in names for strategy in strategies_of(given)):
        if len(JOINT.join([*kept, name])) <= LONGEST:
            kept.append(name)
    return JOINT.join(kept)


def named(said: str) -> str:
    """Returns the combined name for a list of strategies that a person or a model wrote: "`a`, b and c" becomes "a + b + c"."""
    return combined(re.split(r"\s*(?:\+|,|;|&|/|\band\b)\s*", re.sub(r"[`'\"*]", "", said).strip(" .").lower()))


def named_in(source: str) -> tuple[str, ...]:
    """Returns the strategies that a program's header says it applies, in its order."""
    found = re.search(r"^Strategies: ([a-z][a-z\-, +\n]*)\.", source[:HEADER], re.MULTILINE)
    return tuple(filter(None, re.split(r"[,+\s]+", found[1]))) if found else ()
