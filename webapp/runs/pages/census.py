"""Counts a team's runs per state and setting. A single scan of the `run_census` index provides everything that the list's filters show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import BooleanField, Count, ExpressionWrapper, Q

from webapp.accounts.models import Team, User
from webapp.runs.headline import USEFUL
from webapp.runs.models import Run

# The states that the list distinguishes. Every run has exactly one of them, except "", which covers all runs that are not archived.
STATES = {
    "": ("All", Q(archived_at=None)),
    "active": ("Active", Q(archived_at=None) & ~Q(state="finished")),
    "improved": ("Faster", Q(archived_at=None, state="finished", headline__in=USEFUL)),
    "unfinished": ("Without gain", Q(archived_at=None, state="finished") & ~Q(headline__in=USEFUL)),
    "archived": ("Archived", Q(archived_at__isnull=False)),
}
# `outcome` is the result over eager. Links and saved filters from before `result` existed use it.
FILTERS = {
    "result": "headline",
    "outcome": "outcome",
    "workflow": "workflow",
    "device": "device_kind",
    "precision": "precision",
    "author": "created_by__username",
}
ARCHIVED = ExpressionWrapper(Q(archived_at__isnull=False), output_field=BooleanField())
SETTINGS = ("headline", "outcome", "workflow", "device_kind", "precision", "created_by")  # the columns for FILTERS, in the same order


@dataclass(frozen=True)
class Group:
    """A group of runs with the same listed state and the same filter values, and the number of runs in it."""

    state: str
    settings: Mapping[str, str]
    runs: int

    def within(self, state: str) -> bool:
        return self.state == state or (state == "" and self.state != "archived")


@dataclass(frozen=True)
class Census:
    groups: list[Group]

    @classmethod
    def of(cls, team: Team) -> Census:
        alike = Run.objects.filter(team=team).annotate(archived=ARCHIVED).values_list("archived", "state", *SETTINGS)
        found = list(alike.annotate(n=Count("*")).order_by())
        names = dict(User.objects.filter(pk__in={row[-2] for row in found}).values_list("pk", "username"))
        groups = []
        for archived, state, *values, author, runs in found:
            under = "archived" if archived else "active" if state != "finished" else "improved" if values[0] in USEFUL else "unfinished"
            groups.append(Group(under, dict(zip(FILTERS, [*values, names.get(author, "")], strict=True)), runs))
        return cls(groups)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of runs in each state of the filter."""
        return {state: self.total(state, {}) for state in STATES}

    def total(self, state: str, chosen: Mapping[str, str]) -> int:
        """Return the number of runs in a state that match all chosen filters."""
        found = (group for group in self.groups if group.within(state))
        return sum(group.runs for group in found if all(group.settings[name] == value for name, value in chosen.items()))

    @property
    def choices(self) -> dict[str, list[str]]:
        """Return the values offered by each filter, which are those that occur in the team's runs."""
        return {name: sorted({group.settings[name] for group in self.groups} - {""}) for name in FILTERS}
