"""A landscape: every program that a set of choices can produce for one task, with its measured time. Each program is measured once and looked up from
then on.

The choices are *axes* (a strategy off or on, a number at one of several values). The programs are all combinations, in odometer order with the last
axis changing fastest. Times are in microseconds. This module does not import torch or pydantic because it serves a million look-ups per minute.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

FORMAT = 1
LARGE = 2 << 20  # in bytes; larger files are compressed
STATUSES = ("passed", "wrong_result", "build_failed", "crashed", "not_measured")
PASSED = 0

Point = tuple[int, ...]  # for each axis, an index into its values


class LandscapeError(ValueError):
    """Raised if a file is not a landscape or if a landscape cannot be played. The message says what to do."""


@dataclass(frozen=True)
class Axis:
    name: str  # "row-cache", "block"
    group: str  # group in the plan; "" for the whole program
    values: tuple[int, ...]  # 0 and 1 for a strategy
    default: int  # index of the compiler's own choice
    strategy: str = ""  # catalogue name; "" if no strategy matches this number
    numeric: bool = False

    @property
    def label(self) -> str:
        return f"{self.name} in {self.group}" if self.group else self.name


@dataclass
class Landscape:
    """The landscape of one task. Each column has one entry per point. If a point's program is the same as an earlier point's, its entry
    repeats that program's figures."""

    name: str
    what: str  # description in one sentence
    axes: tuple[Axis, ...]
    eager_us: float
    floor_us: float
    program: list[int]  # index of the distinct program
    status: list[int]  # index into STATUSES
    us: list[float | None]  # median
    spread: list[float | None]  # relative, between blocks
    bottleneck: list[str]
    groups: tuple[str, ...] = ()  # own kernels of the plan
    shares: list[list[float] | None] = field(default_factory=list)  # each group's share of the program's time
    launches: list[float | None] = field(default_factory=list)
    sha: str = ""  # hash of the task's source
    programs: str = ""  # hash of all program texts, so that figures from another compiler version's programs are not mixed in
    source: str = ""
    confirmed: list[dict[str, Any]] = field(default_factory=list)  # points that the verifier has also measured

    def __post_init__(self) -> None:
        count = math.prod(len(axis.values) for axis in self.axes)
        for name in ("program", "status", "us", "spread", "bottleneck"):
            if len(getattr(self, name)) != count:
                raise LandscapeError(f"landscape {self.name}: {len(getattr(self, name))} entries in {name!r} for {count} points")

    def __len__(self) -> int:
        return len(self.status)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        strides, step = [], 1
        for axis in reversed(self.axes):
            strides.append(step)
            step *= len(axis.values)
        return tuple(reversed(strides))

    def index(self, point: Point) -> int:
        return sum(at * stride for at, stride in zip(point, self.strides, strict=True))

    def point(self, index: int) -> Point:
        return tuple(index // stride % len(axis.values) for axis, stride in zip(self.axes, self.strides, strict=True))

    @cached_property
    def default(self) -> Point:
        return tuple(axis.default for axis in self.axes)

    @cached_property
    def best(self) -> int:
        """Returns the index of the fastest correct program."""
        passed = [(us, index) for index, (us, status) in enumerate(zip(self.us, self.status, strict=True)) if status == PASSED and us]
        if not passed:
            raise LandscapeError(f"landscape {self.name}: no program passed")
        return min(passed)[1]

    @property
    def best_us(self) -> float:
        return self.time(self.best)

    def time(self, index: int) -> float:
        """Returns the time of a measured program in microseconds. Raises `LandscapeError` if the program was not measured."""
        us = self.us[index]
        if us is None:
            raise LandscapeError(f"landscape {self.name}: program {index} was not measured")
        return us

    @property
    def distinct(self) -> int:
        return len(set(self.program))

    @property
    def measured(self) -> int:
        """Returns the number of distinct programs that have a verdict."""
        return len({number for number, status in zip(self.program, self.status, strict=True) if STATUSES[status] != "not_measured"})

    def speedup(self, index: int) -> float:
        """Returns the speedup over eager, or 0 for an incorrect program."""
        us = self.us[index]
        return self.eager_us / us if self.status[index] == PASSED and us else 0.0

    def neighbours(self, point: Point) -> Iterator[tuple[int, int]]:
        """Yields (axis, value) for every change along a single axis."""
        for number, axis in enumerate(self.axes):
            for value in range(len(axis.values)):
                if value != point[number]:
                    yield number, value

    def describe(self, point: Point) -> str:
        """Returns a description of the choices that differ from the compiler's own."""
        parts = [
            f"{axis.label} = {axis.values[at]}" if axis.numeric else f"{axis.label} {'on' if axis.values[at] else 'off'}"
            for axis, at in zip(self.axes, point, strict=True)
            if at != axis.default
        ]
        return ", ".join(parts) or "the compiler's own choice"


@dataclass
class Table:
    """The landscapes of one device. `kind` is "measured" or "synthetic"; synthetic landscapes are never reported as measured."""

    kind: str
    device: dict[str, Any]
    landscapes: list[Landscape]
    about: dict[str, Any] = field(default_factory=dict)  # the table's origin: commands, times, agreement with the verifier

    def named(self, name: str) -> Landscape:
        return next(landscape for landscape in self.landscapes if landscape.name == name)


def replaced(point: Point, axis: int, value: int) -> Point:
    return (*point[:axis], value, *point[axis + 1 :])


def save(table: Table, path: Path) -> Path:
    """Saves the table as compact JSON. A large table is compressed and gets the suffix `.gz`. Returns the path written."""
    content = {
        "format": FORMAT,
        "kind": table.kind,
        "device": table.device,
        "about": table.about,
        "tasks": [_plain(landscape) for landscape in table.landscapes],
    }
    data = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    scratch = path.with_name(f".{path.name}.new")
    if len(data) > LARGE:
        path = path.with_name(path.name.removesuffix(".gz") + ".gz")
        data = gzip.compress(data, mtime=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch.write_bytes(data)
    scratch.replace(path)
    return path


def _plain(landscape: Landscape) -> dict[str, Any]:
    axes = [
        {"name": a.name, "group": a.group, "values": list(a.values), "default": a.default, "strategy": a.strategy, "numeric": a.numeric}
        for a in landscape.axes
    ]
    columns = {name: getattr(landscape, name) for name in ("program", "status", "bottleneck", "shares", "launches")}
    columns["us"] = [None if value is None else round(value, 3) for value in landscape.us]
    columns["spread"] = [None if value is None else round(value, 4) for value in landscape.spread]
    return {
        "name": landscape.name,
        "what": landscape.what,
        "sha": landscape.sha,
        "programs": landscape.programs,
        "source": landscape.source,
        "axes": axes,
        "eager_us": round(landscape.eager_us, 3),
        "floor_us": round(landscape.floor_us, 3),
        "groups": list(landscape.groups),
        "statuses": list(STATUSES),
        **columns,
        "confirmed": landscape.confirmed,
    }


def load(path: Path) -> Table:
    """Loads a table. Raises `LandscapeError` if the file is not a table of landscapes."""
    try:
        data = path.read_bytes()
        content = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        if content["format"] != FORMAT:
            raise LandscapeError(f"{path} has format {content['format']}, this version reads {FORMAT}: measure it again")
        landscapes = [_landscape(entry) for entry in content["tasks"]]
        return Table(content["kind"], content["device"], landscapes, content.get("about", {}))
    except LandscapeError:
        raise
    except OSError as error:
        raise LandscapeError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LandscapeError(f"{path} is not a table of landscapes ({type(error).__name__}: {error}); bench/landscapes.py makes them") from None


def _landscape(entry: dict[str, Any]) -> Landscape:
    axes = tuple(Axis(a["name"], a["group"], tuple(a["values"]), a["default"], a["strategy"], a["numeric"]) for a in entry["axes"])
    keys = (
        "name",
        "what",
        "eager_us",
        "floor_us",
        "program",
        "status",
        "us",
        "spread",
        "bottleneck",
        "shares",
        "launches",
        "sha",
        "source",
        "programs",
    )
    return Landscape(axes=axes, groups=tuple(entry["groups"]), confirmed=entry["confirmed"], **{key: entry[key] for key in keys})


def merged(tables: Sequence[Table]) -> Table:
    """Merges the parts of one measurement into one table. If a task appears in several parts, the most complete one is used."""
    if not tables:
        raise LandscapeError("there is nothing to merge")
    kinds = {table.kind for table in tables}
    models = {str(table.device.get("device_name")) for table in tables}
    if len(kinds) > 1 or len(models) > 1:
        raise LandscapeError(f"these are not parts of one measurement: {', '.join(sorted(kinds | models))}")
    best: dict[str, Landscape] = {}
    for table in tables:
        for landscape in table.landscapes:
            known = best.get(landscape.name)
            if known is None or (landscape.measured, len(landscape.confirmed)) > (known.measured, len(known.confirmed)):
                best[landscape.name] = landscape
    return Table(tables[0].kind, tables[0].device, [best[name] for name in sorted(best)], {"parts": [table.about for table in tables]})
