"""The strategy catalogue. The Planner chooses from it, it decides which advice a diagnosis may give, and the pages explain it."""

from agents.strategies.catalogue import CATALOGUE, by_name
from agents.strategies.combined import combined, named, named_in, parts, strategies_of
from agents.strategies.how_to import FAMILIES, LANGUAGES
from agents.strategies.strategy import Facts, Strategy

__all__ = ["CATALOGUE", "FAMILIES", "LANGUAGES", "Facts", "Strategy", "by_name", "combined", "named", "named_in", "parts", "strategies_of"]
