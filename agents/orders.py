"""Notes that the built-in compiler follows. It does not read prose: a line of a note either is an order in one of three forms or has no effect.

    skip cuda-graph, row-cache        these strategies are no longer tried from here on
    only try block-size               only these strategies are tried from here on
    allow row-cache    /  allow all   cancels earlier skips and any "only"

The best program keeps any strategies that it already uses. Names come from the strategy catalogue; `block-size` stands for all tunable numbers of a
kernel.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from agents.choices.workflows import WORKFLOWS, searches
from agents.settings import Settings
from agents.strategies import CATALOGUE

ROLES = {"planner": "planner", "coder": "coder", "verifier": "judge"}  # the addressee of a note, and the setting that determines who plays it
BUILT_IN = "built-in"
FORMS = "`skip STRATEGY`, `only STRATEGY, STRATEGY`, `allow STRATEGY` or `allow all`, one per line"

_ORDER = re.compile(r"^[\s*-]*(skip|only|allow)\s+(?:(?:try|use|strategy|strategies)\s+)*(\S.*?)[\s.!]*$", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*(?:,|;|\band\b|\bor\b|\s)\s*", re.IGNORECASE)


class NotAnOrder(ValueError):
    """Raised if the compiler would not understand a line. The message lists the forms that it does understand."""


@dataclass(frozen=True)
class Order:
    verb: str  # skip, only, allow
    names: tuple[str, ...]  # strategy names; an "allow" without names means all of them


@dataclass
class Orders:
    """Strategies that people have ruled out, based on all notes that the compiler has read so far."""

    skipped: frozenset[str] = frozenset()
    only: frozenset[str] | None = None

    def obey(self, order: Order) -> str:
        """Applies the order and returns a description of the rules from now on."""
        if order.verb == "skip":
            self.skipped |= set(order.names)
            return f"{listed(order.names)} {'are' if len(order.names) > 1 else 'is'} no longer tried from here on"
        if order.verb == "only":
            self.only = frozenset(order.names)
            self.skipped -= self.only
            return f"nothing but {listed(order.names)} is tried from here on"
        if not order.names:
            self.skipped, self.only = frozenset(), None
            return "every strategy may be tried again"
        self.skipped -= set(order.names)
        if self.only is not None:
            self.only |= set(order.names)
        return f"{listed(order.names)} may be tried again"

    def refuses(self, strategy: str) -> str | None:
        """Returns the reason why notes forbid a strategy, or None if they do not. A program without a strategy is never refused."""
        if strategy and strategy in self.skipped:
            return f"a note says to skip {strategy}"
        if strategy and self.only is not None and strategy not in self.only:
            return f"a note says to try only {listed(sorted(self.only))}"
        return None


def read(text: str) -> list[Order]:
    """Returns the orders in a note, one per line. Raises `NotAnOrder` at the first line that is not an order."""
    return [_read(line) for line in _lines(text)]


def found(text: str) -> list[Order]:
    """Returns the orders in a note that was also addressed to a model. All other lines are treated as prose."""
    orders = []
    for line in _lines(text):
        try:
            orders.append(_read(line))
        except NotAnOrder:
            continue
    return orders


def check(settings: Settings, to: str, text: str) -> None:
    """Raises `NotAnOrder` if none of the note's addressees would understand it."""
    if not searches(settings.workflow):
        raise NotAnOrder("this run verifies a person's own program: no agent works here that could read a note")
    if all(role in compiled(settings) for role in ROLES if to in (role, "all")):
        read(text)


def compiled(settings: Settings) -> tuple[str, ...]:
    """Returns the roles that the built-in compiler plays, under the names used in notes."""
    always = WORKFLOWS[settings.workflow].compiled
    return tuple(role for role, setting in ROLES.items() if setting in always or getattr(settings, setting) == BUILT_IN)


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip())


def _read(line: str) -> Order:
    match = _ORDER.match(line)
    if match is None:
        raise NotAnOrder(f"the built-in compiler does not read prose. It obeys {FORMS}; a model as the role reads everything")
    verb, names = match[1].lower(), [name.strip("`\"'") for name in _BETWEEN.split(match[2]) if name.strip("`\"'")]
    if verb == "allow" and [name.lower() for name in names] in (["all"], ["everything"]):
        return Order(verb, ())
    catalogue = [strategy.name for strategy in CATALOGUE]
    unknown = next((name for name in names if name not in catalogue), None)
    if unknown is not None or not names:
        near = difflib.get_close_matches((unknown or "").lower(), catalogue, n=3)
        meant = f"did you mean {' or '.join(near)}?" if near else "the page of strategies lists them"
        raise NotAnOrder(f"there is no strategy {(unknown or '')[:60]!r}; {meant} The built-in compiler does not read prose, it obeys {FORMS}")
    return Order(verb, tuple(dict.fromkeys(names)))


def listed(names: tuple[str, ...] | list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
