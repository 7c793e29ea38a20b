"""The training runs under `LEARNING_DIR`: their states, and who may see what.

A training run belongs to the team named in its `run.json` (`train --team SLUG`), and only members of that team can see it. A training run without a
team belongs to the installation. Every signed-in person can see its curves. Its rollouts contain tasks of teams, so only an installation with a
single account shows them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import Http404

from webapp.accounts.access import teams_with
from webapp.accounts.models import User
from webapp.accounts.signed_in import Request
from webapp.learning.curves import Curves, curves_of
from webapp.learning.files import METRICS, ROLLOUTS, RUN, Problem, figure, object_in, text, unreadable

DEEPEST = 3  # folder levels under LEARNING_DIR: arm/task/seed
MOST_LOOKED_AT = 2000  # folders
SILENT_SECONDS = 600  # a session is considered dead if it has written nothing for this long, or for the time of this many steps
SILENT_STEPS = 5
INTERRUPTED = "interrupted"  # as written by agents/rl/records.py
MEND_RUN = "Continue the training with the same command: it writes the file again. Or move the folder away."


@dataclass(frozen=True)
class Sitting:
    began: str
    step: int
    ended: bool
    why: str


@dataclass(frozen=True)
class Training:
    name: str  # the folder's path under LEARNING_DIR
    folder: Path
    kind: str = ""  # "grpo", "supervised"; "" if unknown
    model: str = ""
    device: str = ""
    team: str = ""  # slug
    steps: int | None = None  # requested number
    sittings: tuple[Sitting, ...] = ()
    problem: Problem | None = None  # a problem with run.json
    written: float = 0.0  # time of the last change to a file, in seconds since 1970

    @cached_property
    def curves(self) -> Curves:
        return curves_of(self.folder / METRICS)

    @property
    def problems(self) -> list[Problem]:
        return [problem for problem in (self.problem, self.curves.problem) if problem is not None]

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.written).astimezone()

    @property
    def latest(self) -> dict[str, float | None]:
        """A training run's figures, as shown in the list."""
        return {name: self.curves.last(name) for name in ("reward", "success", "hacks", "speedup")}

    @property
    def has_rollouts(self) -> bool:
        return (self.folder / ROLLOUTS).exists() and self.kind != "supervised"

    @property
    def silent(self) -> bool:
        pace = self.curves.last("seconds") or 0.0
        return time.time() - self.written > max(SILENT_SECONDS, SILENT_STEPS * pace)

    @property
    def state(self) -> str:
        """Returns a key of `STATUSES`."""
        if not self.sittings:
            return "stopped" if self.silent else "running"
        last = self.sittings[-1]
        if not last.ended:
            return "silent" if self.silent else "running"
        return "stopped" if last.why == INTERRUPTED else "failed" if last.why else "finished"

    @property
    def why(self) -> str:
        """Returns the error that ended the training run."""
        return self.sittings[-1].why if self.state == "failed" else ""


def is_used() -> bool:
    """Returns whether the directory has any content. Every page calls this, so the check is cheap."""
    try:
        with os.scandir(settings.LEARNING_DIR) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def trainings_for(request: Request) -> list[Training]:
    """Returns the training runs that the requester may see, most recently written first. Raises `Problem` if the directory cannot be read."""
    mine = set(teams_with(request).values_list("slug", flat=True))
    found = (_training(name, folder) for name, folder in _folders(settings.LEARNING_DIR))
    return sorted((one for one in found if not one.team or one.team in mine), key=lambda one: (-one.written, one.name))


def training_for(request: Request, name: str) -> Training:
    """Returns the training run with this name. Raises `Http404` if the requester may see no such run."""
    try:
        found = next((one for one in trainings_for(request) if one.name == name), None)
    except Problem:
        found = None
    if found is None:
        raise Http404("no such training")
    return found


def shows_rollouts(request: Request, training: Training) -> bool:
    """Returns whether the requester may see the rollouts. An unreadable run.json means that the owner is unknown."""
    if training.team:
        return True
    return training.problem is None and not User.objects.exclude(pk=request.user.pk).exists()


def _folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Returns the folders that contain a training run's files, sorted by name. Links are not followed."""
    waiting, seen = [(root, "")], 0
    while waiting:
        folder, name = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        except OSError as error:
            if not name:
                raise unreadable("LEARNING_DIR", error) from None
            yield name, folder
            continue
        if name and any(entry.name in (RUN, METRICS) for entry in entries):
            yield name, folder
        if name.count("/") + 1 < DEEPEST or not name:
            below = [
                entry for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name.isprintable() and not entry.name.startswith(".")
            ]
            seen += len(below)
            if seen <= MOST_LOOKED_AT:
                waiting += [(Path(entry.path), f"{name}/{entry.name}".strip("/")) for entry in below]


def _training(name: str, folder: Path) -> Training:
    written = max((_written(folder / file) for file in (RUN, METRICS, ROLLOUTS)), default=0.0)
    try:
        raw = (folder / RUN).read_bytes()
        said = object_in(raw, RUN, MEND_RUN)
    except FileNotFoundError:
        return Training(name, folder, written=written)
    except OSError as error:
        return Training(name, folder, problem=unreadable(RUN, error), written=written)
    except Problem as problem:
        return Training(name, folder, problem=problem, written=written)
    team, sittings = said.get("team", ""), said.get("sittings", [])
    if not isinstance(team, str) or not isinstance(sittings, list) or said.get("version") != 1:
        foreign = Problem(RUN, "another version, or another program, wrote this file.", MEND_RUN)
        return Training(name, folder, problem=foreign, written=written)
    config = said.get("config")
    return Training(
        name,
        folder,
        kind=text(said.get("kind"), 40),
        model=text(said.get("model"), 200),
        device=text(said.get("device"), 40),
        team=text(team, 200),
        steps=_whole(config.get("steps")) if isinstance(config, dict) else None,
        sittings=tuple(_sitting(one) for one in sittings if isinstance(one, dict)),
        written=written,
    )


def _sitting(said: dict[str, Any]) -> Sitting:
    return Sitting(text(said.get("began"), 40), _whole(said.get("step")) or 0, said.get("ended") is not None, text(said.get("why"), 600))


def _whole(value: Any) -> int | None:
    found = figure(value)
    return int(found) if found is not None and 0 <= found < 1e15 else None


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
