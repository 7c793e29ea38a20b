"""The catalogue of strategies: what the Planner chooses from, what gates a diagnosis, what the pages explain."""

from agents.strategies.catalogue import CATALOGUE, by_name
from agents.strategies.combined import combined, named, parts, strategies_of
from agents.strategies.how_to import FAMILIES, LANGUAGES
from agents.strategies.strategy import Facts, Strategy

__all__ = ["CATALOGUE", "FAMILIES", "LANGUAGES", "Facts", "Strategy", "by_name", "combined", "named", "parts", "strategies_of"]
