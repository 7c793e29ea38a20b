"""Memory across runs: improvements that were confirmed, found by operators and device, and kept away from a benchmark that is being scored.

Only what held in tier full teaches anybody anything (KernelArc's rule: verified conclusions only). What is found is journalled as an effect
of the span that asked, so a resumed run sees the same inspirations however many runs have finished meanwhile.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, ConfigDict

from agents.journal import ARTEFACTS, TRACE, TraceDamaged, parse_lines
from agents.strategies.ledger import GAIN, Entry, entries
from verifier.source import sha256

if TYPE_CHECKING:
    from agents.roles.situation import Situation
    from agents.span import Span

FOUND = 4  # inspirations of a search


class Split(BaseModel):
    """The part of a benchmark that is being scored: nothing that was learned on its tasks may come back."""

    model_config = ConfigDict(frozen=True)

    tasks: frozenset[str] = frozenset()  # sha of their sources
    suites: frozenset[str] = frozenset()  # by name

    def holds(self, task: str, suites: Iterable[str] = ()) -> bool:
        return task in self.tasks or not self.suites.isdisjoint(suites)


class Inspiration(BaseModel):
    """An improvement of a finished run that was confirmed."""

    strategy: str
    operators: list[str]
    device: str  # "cpu", "cuda"
    device_model: str = ""
    gain: float  # over the program before it
    expected: float | None = None
    speedup: float | None = None  # of the program over eager
    changes: str = ""  # what was done, in a sentence
    task: str = ""  # sha of the task's source
    task_name: str = ""
    run: str = ""
    candidate: int = 0

    @property
    def line(self) -> str:
        """For a prompt: what it was, where it held, what it brought."""
        where = ", ".join(dict.fromkeys(self.operators)) or "a whole program"
        what = f": {' '.join(self.changes.split())}" if self.changes else ""
        return f"- {self.strategy} on {where} ({self.device_model or self.device}): {self.gain:.2f}x over the program before it{what}"


class Inspirations(Protocol):
    """Where confirmed improvements of earlier runs are found: a team's database, or a folder of finished runs."""

    async def find(self, operators: Sequence[str], device: str, exclude: Split) -> list[Inspiration]:
        """The most fitting first, at most FOUND; `device` is "cpu", "cuda" or one such as "cuda:0"."""


async def recall(span: Span, situation: Situation) -> list[Inspiration]:
    """What earlier runs can teach about this task, as an effect of `span`; none where nothing is connected."""
    port = span.run.inspirations
    if port is None:
        return []
    split = span.run.split or Split()
    exclude = Split(tasks=split.tasks | {sha256(situation.task_source)}, suites=split.suites)

    async def find() -> list[dict]:
        found = await port.find(operators_of(situation), situation.settings.device, exclude)
        return [inspiration.model_dump(mode="json") for inspiration in found]

    return [Inspiration.model_validate(row) for row in await span.effect("inspirations", find)]


def operators_of(situation: Situation) -> list[str]:
    """The task's operators in the words of plans."""
    from compiler.planning.plan import word

    graph = situation.capture.graph if situation.capture else None
    return list(dict.fromkeys(word(node) for node in graph.nodes if node.op != "getitem")) if graph else []


def inspirations_from(entries: Iterable[Entry], device_model: str = "") -> list[Inspiration]:
    """Entries of a finished run that count as verified improvements."""
    return [
        Inspiration(
            strategy=e.strategy, operators=e.operators, device=e.device, device_model=device_model, gain=e.realised, expected=e.expected,
            speedup=e.speedup, changes=e.changes[:600], task=e.task, task_name=e.task_name, run=e.run, candidate=e.candidate,
        )
        for e in entries
        if e.confirmed and e.outcome == "gained" and e.realised is not None
    ]  # fmt: skip


def ranked(known: Iterable[Inspiration], operators: Sequence[str], device: str, limit: int = FOUND) -> list[Inspiration]:
    """Those of the same kind of device that share an operator; each strategy once, the one that fits and brought most."""
    wanted = {plain(name) for name in operators}
    family = device.partition(":")[0]

    def fit(one: Inspiration) -> float:
        mine = {plain(name) for name in one.operators}
        return len(mine & wanted) / len(mine | wanted) if mine and wanted else 0.0

    fitting = [(fit(one) * (1 + math.log(max(one.gain, GAIN))), one) for one in known if one.device == family and fit(one) > 0]
    fitting.sort(key=lambda pair: (-pair[0], pair[1].run, pair[1].candidate))
    best: dict[str, Inspiration] = {}
    for _, one in fitting:
        best.setdefault(one.strategy, one)
    return list(best.values())[:limit]


def plain(name: str) -> str:
    """ "layer_norm", "Layer norm" and "layer norm" are one operator."""
    return name.replace("_", " ").strip().casefold()


class FolderInspirations:
    """Confirmed improvements of the finished runs below a folder, as `python -m agents solve --out` leaves them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._read: dict[Path, tuple[float, list[Inspiration]]] = {}

    async def find(self, operators: Sequence[str], device: str, exclude: Split) -> list[Inspiration]:
        # A run on disk knows no suite: the split's tasks are told apart by their sources.
        return ranked([one for one in self._all() if not exclude.holds(one.task)], operators, device)

    def _all(self) -> list[Inspiration]:
        found: list[Inspiration] = []
        for trace in sorted(self.folder.rglob(TRACE)):
            try:
                changed = trace.stat().st_mtime
            except FileNotFoundError:  # a run that was taken away meanwhile
                continue
            if self._read.get(trace, (None,))[0] != changed:
                self._read[trace] = changed, self._of(trace)
            found += self._read[trace][1]
        return found

    @staticmethod
    def _of(trace: Path) -> list[Inspiration]:
        """None of a run that is still going on, or that cannot be read: it teaches nothing, and must not stop another."""
        try:
            data = trace.read_bytes()
            events = parse_lines(data[: data.rfind(b"\n") + 1].splitlines())
        except (OSError, TraceDamaged):
            return []
        if not events or events[-1].kind != "run.finished":
            return []
        verified = (e.payload.get("result") for e in events if e.kind == "verification.finished" and e.payload.get("job") == "verify")
        return inspirations_from(entries(events), _device_model(trace.parent, next((ref for ref in verified if ref), None)))


def _device_model(folder: Path, result: dict | None) -> str:
    try:
        report = json.loads((folder / ARTEFACTS / result["sha"]).read_bytes()).get("report") if result else None
    except (OSError, ValueError):
        return ""
    return ((report or {}).get("environment") or {}).get("device_model", "")
