"""Suites are sets of tasks that are ranked together: imported KernelBench levels, StitchCUDA's ten level-3 tasks, and a team's own suites."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Case, Count, Q, QuerySet, When

from webapp.accounts.access import Asker, teams_with, user_of
from webapp.leaderboard.filters import is_uuid
from webapp.leaderboard.models import EVERYONE, PRIVATE, Suite
from webapp.leaderboard.shown.opening import opened_teams, signed_in
from webapp.tasks.models import Suite as Imported
from webapp.tasks.models import Task

LEVEL_3 = "kernelbench-level3"
TEN = "stitchcuda-ten"
TEN_NUMBERS = (18, 22, 23, 24, 21, 19, 2, 39, 38, 32)  # the level-3 tasks of StitchCUDA (arXiv 2603.02637)
OF_THE_TEN = rf"^({'|'.join(map(str, TEN_NUMBERS))})_"


@dataclass(frozen=True)
class Choice:
    key: str  # in a URL
    name: str
    kind: str  # "imported", "ten", "own"
    count: int
    owner: str = ""  # name of the team, unless obvious


@dataclass(frozen=True)
class Chosen:
    key: str
    name: str
    names: dict[str, str] = field(default_factory=dict)  # keyed by the hash of the task's source, in the suite's order


def choices(asker: Asker) -> list[Choice]:
    """Return the suites that the requester may see, without their tasks."""
    found = [Choice(suite.slug, suite.name, "imported", suite.count) for suite in _imported(asker).annotate(count=Count("tasks")) if suite.count]
    unique = sorted({choice.key: choice for choice in reversed(found)}.values(), key=lambda choice: natural(choice.name))
    if any(choice.key == LEVEL_3 for choice in unique):
        unique.append(Choice(TEN, "StitchCUDA's ten of level 3", "ten", len(TEN_NUMBERS)))
    own = visible(asker).annotate(count=Count("tasks")).select_related("team").order_by("name")
    return unique + [Choice(str(suite.pk), suite.name, "own", suite.count, suite.team.name) for suite in own]


def choose(asker: Asker, key: str) -> Chosen | None:
    """Return the suite with its tasks, or None if the requester can see no such suite."""
    if is_uuid(key):
        own = visible(asker).filter(pk=key).first()
        return Chosen(key, own.name, dict(own.tasks.values_list("sha", "name"))) if own else None
    suite = _imported(asker).filter(slug=LEVEL_3 if key == TEN else key).first()
    if suite is None:
        return None
    tasks = suite.tasks.filter(name__regex=OF_THE_TEN) if key == TEN else suite.tasks.all()
    names = dict(sorted(tasks.values_list("sha", "name"), key=lambda pair: natural(pair[1])))
    return Chosen(key, "StitchCUDA's ten of level 3" if key == TEN else suite.name, names)


def visible(asker: Asker) -> QuerySet[Suite]:
    """Return the suites created by teams: those of the requester's teams, those shared with everyone, and those that only the requester can see."""
    if not signed_in(asker):
        return Suite.objects.filter(visibility=EVERYONE, team__in=opened_teams())
    mine = Q(team__in=teams_with(asker)) & (~Q(visibility=PRIVATE) | Q(created_by=user_of(asker)))
    return Suite.objects.filter(mine | Q(visibility=EVERYONE))


def _imported(asker: Asker) -> QuerySet[Imported]:
    """Return imported suites. The current team's come first, because several teams may have imported the same checkout."""
    current = getattr(getattr(asker, "team", None), "pk", None)
    found = Imported.objects.filter(team__in=teams_with(asker))
    return found.order_by(Case(When(team=current, then=0), default=1) if current else "pk", "pk")


def natural(name: str) -> list[Any]:
    """Sort key that places "9_x" before "10_x"."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part.casefold()) for part in re.findall(r"\d+|\D+", name)]


class SuiteRefused(ValueError):
    """Raised if a list of tasks cannot become a suite. The message says which line is wrong and how to fix it."""


def read_tasks(asker: Asker, lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return (sha, name) for each line of a file.

    A line holds a task's name, the hash of its source, or both. Raises `SuiteRefused`.
    """
    known = list(Task.objects.filter(team__in=teams_with(asker)).values_list("sha", "name"))
    by_sha, by_name = dict(known), {name.casefold(): (sha, name) for sha, name in reversed(known)}
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        words = text.split(maxsplit=1)
        if re.fullmatch(r"[0-9a-f]{64}", words[0]):
            sha, name = words[0], words[1] if len(words) > 1 else by_sha.get(words[0], words[0][:12])
        elif text.casefold() in by_name:
            sha, name = by_name[text.casefold()]
        else:
            raise SuiteRefused(
                f"Line {number}: your teams have no task named “{text[:80]}”. Submit it or import its checkout, or give the SHA-256 of its source."
            )
        found.setdefault(sha, name[:120])
    if not found:
        raise SuiteRefused("The list is empty: give one task per line, by its name or the SHA-256 of its source.")
    return list(found.items())
