"""Imports a KernelBench checkout or a zip of tasks, with one suite per level."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from django.db import transaction
from django.utils.text import slugify

from verifier.source import MAX_SOURCE_BYTES, SourceError
from verifier.task import Task as TaskSource
from webapp.accounts.models import Team, User
from webapp.tasks.models import Suite, Task

LEVEL = re.compile(r"level_?(\d+)")
NUMBERED = re.compile(r"(\d+)_(.+)\.py")
MOST_FILES = 5000  # per zip
MOST_ZIP_BYTES = 32 * 1024 * 1024


class NotKernelBench(ValueError):
    """Raised if no tasks were found. The message says what was looked for."""


@dataclass(frozen=True)
class Found:
    """The files of one suite, and a name for it."""

    slug: str
    name: str
    description: str
    files: list[tuple[str, str, bytes]] = field(default_factory=list)  # task name, file name, content


@dataclass(frozen=True)
class Imported:
    name: str
    new: int
    known: int
    problems: list[str]  # a sentence for each file that is not a task


def import_kernelbench(path: Path, team: Team, user: User | None) -> list[Imported]:
    """Import `KernelBench/levelN/M_name.py` under `path`.

    `path` is a checkout, its KernelBench folder, or the folder of one level. Importing again changes nothing.
    """
    return import_suites(from_folder(path), team, user)


def from_folder(path: Path) -> list[Found]:
    return [_level(level, [(file.name, file.read_bytes()) for file in sorted(folder.glob("*.py"))], str(folder)) for level, folder in _levels(path)]


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


def from_zip(upload: IO[bytes]) -> list[Found]:
    """Return one suite per level if the zip has level folders. Otherwise return all of its Python files as one suite named after the zip."""
    name = PurePosixPath(str(getattr(upload, "name", "") or "upload.zip")).stem
    levels: dict[int, list[tuple[str, bytes]]] = {}
    loose: list[tuple[str, bytes]] = []
    for path, content in _members(upload):
        match = next((match for part in reversed(path.parts[:-1]) if (match := LEVEL.fullmatch(part))), None)
        if match and NUMBERED.fullmatch(path.name):
            levels.setdefault(int(match[1]), []).append((path.name, content))
        else:
            loose.append((path.name, content))
    if levels:
        return [_level(level, files, f"level{level} of {name}") for level, files in sorted(levels.items())]
    if not loose:
        raise NotKernelBench("the zip has no Python file: pack the folder KernelBench of a checkout, or your task files")
    slug = slugify(name)[:100] or "uploaded"
    return [Found(slug, name[:100], f"Uploaded as {name}.zip", [(file.removesuffix(".py"), file, content) for file, content in sorted(loose)])]


def _members(upload: IO[bytes]) -> Iterable[tuple[PurePosixPath, bytes]]:
    """Yield the zip's Python files, up to reasonable limits. The sizes claimed in headers are checked against the bytes read."""
    try:
        with zipfile.ZipFile(upload) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir() and info.filename.endswith(".py") and "__MACOSX" not in info.filename]
            if len(infos) > MOST_FILES:
                raise NotKernelBench(f"the zip has {len(infos)} Python files; at most {MOST_FILES} are read")
            left = MOST_ZIP_BYTES
            for info in infos:
                with archive.open(info) as file:
                    content = file.read(min(left, MAX_SOURCE_BYTES) + 1)
                left -= len(content)
                if left < 0:
                    raise NotKernelBench(f"the zip unpacks to more than {MOST_ZIP_BYTES // 1024 // 1024} MiB")
                yield PurePosixPath(info.filename), content
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise NotKernelBench(f"the zip cannot be read ({str(error)[:120] or type(error).__name__})") from None


def _level(level: int, files: Iterable[tuple[str, bytes]], where: str) -> Found:
    numbered = sorted((int(match[1]), match[2], name, content) for name, content in files if (match := NUMBERED.fullmatch(name)))
    if not numbered:
        raise NotKernelBench(f"{where} has no files like 23_Softmax.py")
    tasks = [(f"{number}_{title}"[:120], f"level{level}/{name}", content) for number, title, name, content in numbered]
    return Found(f"kernelbench-level{level}", f"KernelBench L{level}", f"Level {level} of a KernelBench checkout", tasks)


def import_suites(found: list[Found], team: Team, user: User | None) -> list[Imported]:
    return [_import(suite, team, user) for suite in found]


def _import(found: Found, team: Team, user: User | None) -> Imported:
    new, known, problems = 0, 0, []
    with transaction.atomic():
        suite, _ = Suite.objects.get_or_create(team=team, slug=found.slug, defaults={"name": found.name, "description": found.description})
        for name, label, content in found.files:
            try:
                source = content.decode("utf-8-sig").replace("\r\n", "\n")
                sha = TaskSource.read(source).sha
            except (SourceError, UnicodeDecodeError) as error:
                problems.append(f"{label}: {str(error)[:200]}")
                continue
            defaults = {"name": name[:120], "source": source, "created_by": user, "suite": suite}
            _, created = Task.objects.get_or_create(team=team, sha=sha, defaults=defaults)
            new, known = new + created, known + (not created)
        if not new + known:
            transaction.set_rollback(True)
    if not new + known:
        raise NotKernelBench(f"{found.name} has no file in KernelBench's format: {problems[0] if problems else 'nothing in it'}")
    return Imported(found.name, new, known, problems)
