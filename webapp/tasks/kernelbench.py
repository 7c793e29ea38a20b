"""A KernelBench checkout as suites of tasks, one a level."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction

from verifier.source import SourceError
from verifier.task import Task as TaskSource
from webapp.accounts.models import Team, User
from webapp.tasks.models import Suite, Task

LEVEL = re.compile(r"level_?(\d+)")
NUMBERED = re.compile(r"(\d+)_(.+)\.py")


class NotKernelBench(ValueError):
    """The path is not a KernelBench checkout; the message says what was looked for."""


@dataclass(frozen=True)
class Imported:
    level: int
    new: int
    known: int
    problems: list[str]  # a sentence a file that is not a task


def import_kernelbench(path: Path, team: Team, user: User | None) -> list[Imported]:
    """Read `KernelBench/levelN/M_name.py` below `path` (a checkout, its folder KernelBench, or one level). Importing again changes nothing."""
    return [_import_level(level, folder, team, user) for level, folder in _levels(path)]


def _levels(path: Path) -> list[tuple[int, Path]]:
    if not path.is_dir():
        raise NotKernelBench(f"{path} is not a directory")
    for root in (path / "KernelBench", path):
        found = sorted((int(match[1]), folder) for folder in root.glob("level*") if folder.is_dir() and (match := LEVEL.fullmatch(folder.name)))
        if found:
            return found
    if match := LEVEL.fullmatch(path.name):
        return [(int(match[1]), path)]
    raise NotKernelBench(f"{path} has no folders KernelBench/level1, level2, ...: give the path of a KernelBench checkout")


def _import_level(level: int, folder: Path, team: Team, user: User | None) -> Imported:
    files = sorted((int(match[1]), match[2], file) for file in folder.glob("*.py") if (match := NUMBERED.fullmatch(file.name)))
    if not files:
        raise NotKernelBench(f"{folder} has no files like 23_Softmax.py")
    new, known, problems = 0, 0, []
    with transaction.atomic():
        description = f"Level {level} of a KernelBench checkout"
        suite, _ = Suite.objects.get_or_create(
            team=team, slug=f"kernelbench-level{level}", defaults={"name": f"KernelBench L{level}", "description": description}
        )
        for number, name, file in files:
            try:
                source = file.read_text(encoding="utf-8")
                sha = TaskSource.read(source).sha
            except (SourceError, UnicodeDecodeError, OSError) as error:
                problems.append(f"{folder.name}/{file.name}: {error}")
                continue
            defaults = {"name": f"{number}_{name}"[:120], "source": source, "created_by": user, "suite": suite}
            _, created = Task.objects.get_or_create(team=team, sha=sha, defaults=defaults)
            new, known = new + created, known + (not created)
    return Imported(level, new, known, problems)
