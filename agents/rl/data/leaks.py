"""Assigns splits that keep similar tasks together, and reports the leaks that remain. (StitchCUDA's data contained 34 of its 50 test
architectures.)"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agents.rl.data.structure import NoReference, Structure, structure

ALIKE = 0.8  # share of common features at which two structures differ in only a line or two
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}


@dataclass(frozen=True)
class Leak:
    """A training task that is also in the evaluation set."""

    train: str
    held_out: str
    similarity: float
    same_structure: bool


@dataclass(frozen=True)
class LeakReport:
    compared: tuple[int, int]  # numbers of training tasks and held-out tasks
    unread: tuple[str, ...]  # sources that cannot be parsed; the report fails because their similarity is unknown
    leaks: tuple[Leak, ...]

    @property
    def clean(self) -> bool:
        return not self.leaks and not self.unread

    def as_json(self) -> dict[str, Any]:
        return {"clean": self.clean, "compared": list(self.compared), "unread": list(self.unread), "leaks": [asdict(leak) for leak in self.leaks]}


class Index:
    """Finds similar structures without comparing all pairs, because two structures that overlap by `ALIKE` share one of their rarest features."""

    def __init__(self, known: Mapping[str, Structure]):
        self.known = known
        self._count: Counter[tuple[Any, ...]] = Counter(feature for one in known.values() for feature in one.features)
        self._keys: dict[str, list[str]] = defaultdict(list)
        self._rare: dict[tuple[Any, ...], list[str]] = defaultdict(list)
        for name, one in known.items():
            self._keys[one.key].append(name)
            for feature in self._rarest(one):
                self._rare[feature].append(name)

    def alike(self, one: Structure) -> Iterator[tuple[str, float]]:
        """Yields names with their similarity in no particular order."""
        near = set(self._keys.get(one.key, ()))
        for feature in self._rarest(one):
            near.update(self._rare.get(feature, ()))
        for name in near:
            similarity = one.similarity(self.known[name])
            if similarity >= ALIKE:
                yield name, similarity

    def _rarest(self, one: Structure) -> list[tuple[Any, ...]]:
        size = len(one.features)
        return sorted(one.features, key=lambda feature: (self._count[feature], feature))[: size - int(ALIKE * size) + 1]


def structures(tasks: Mapping[str, str]) -> tuple[dict[str, Structure], list[str]]:
    """Returns the structure of each source, keyed by name, and the names of the sources that could not be read."""
    found, unread = {}, []
    for name, source in tasks.items():
        try:
            found[name] = structure(source)
        except NoReference:
            unread.append(name)
    return found, unread


def leaks(train: Mapping[str, str], held_out: Mapping[str, str]) -> LeakReport:
    """Compares two sets of sources, each keyed by name. A pair counts if the two sources are similar, or if they differ only in names, order and
    constants."""
    held, unread_held = structures(held_out)
    mine, unread = structures(train)
    index = Index(held)
    found = [
        Leak(name, other, round(similarity, 4), one.key == held[other].key) for name, one in mine.items() for other, similarity in index.alike(one)
    ]
    found.sort(key=lambda leak: (-leak.similarity, leak.train, leak.held_out))
    return LeakReport((len(train), len(held_out)), tuple(sorted([*unread, *unread_held])), tuple(found))


def split(tasks: Mapping[str, str], seed: int = 0, fixed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns a split ("train", "validation", "test") for each name. Tasks that are similar, directly or through other tasks, get the same split. It
    is drawn from the hash of their structure, so a task keeps its split when other tasks are added. `fixed`: splits assigned earlier; a group that
    contains such a task keeps its split."""
    known, unread = structures(tasks)
    parent = {name: name for name in known}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    index = Index(known)
    for name, one in known.items():
        for other, _ in index.alike(one):
            parent[root(name)] = root(other)
    groups: dict[str, list[str]] = defaultdict(list)
    for name in known:
        groups[root(name)].append(name)
    given: dict[str, str] = {}
    for members in groups.values():
        chosen = _drawn(min(known[name].key for name in members), seed)
        before = [fixed[name] for name in members if fixed and name in fixed]
        given |= dict.fromkeys(members, before[0] if before else chosen)
    given |= {name: fixed[name] for name in tasks if fixed and name in fixed}
    return given | {name: given.get(name, "train") for name in unread}


def _drawn(key: str, seed: int) -> str:
    at = int.from_bytes(hashlib.sha256(f"{seed}:{key}".encode()).digest()[:8]) / 2**64
    for name, share in SHARES.items():
        at -= share
        if at < 0:
            return name
    return next(reversed(SHARES))


def tasks_below(folders: Iterable[Path]) -> dict[str, str]:
    """Returns the sources in the given task files and folders, keyed by path. Raises `FileNotFoundError` if no task files are found."""
    found: dict[str, str] = {}
    for folder in folders:
        files: Sequence[Path] = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*.py") if not p.name.startswith("_"))
        kept = {str(p): text for p in files if "class Model" in (text := p.read_text(encoding="utf-8-sig", errors="replace"))}
        if not kept:
            raise FileNotFoundError(f"{folder} holds no task (a .py file with a class Model)")
        found |= kept
    return found
