"""Memory across runs: improvements that were confirmed, found by operators and device, and kept away from a benchmark that is being scored.

Only what held in tier full teaches anybody anything (KernelArc's rule: verified conclusions only). What is found is journalled as an effect
of the span that asked, so a resumed run sees the same inspirations however many runs have finished meanwhile.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ConfigDict

from agents.journal import ARTEFACTS, TRACE, parse_lines
from agents.payloads import ArtefactRef, RunFinished, VerificationFinished
from agents.strategies.ledger import GAIN, Entry, entries
from verifier.graph import Graph
from verifier.source import sha256

if TYPE_CHECKING:
    from agents.roles.situation import Situation
    from agents.span import Span

FOUND = 4  # inspirations of a search
DIFFERENCE = 120  # lines of a change that is shown whole


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
    around: list[str] = []  # signature of the task's graph that it was done in; empty where it is not known
    device: str  # "cpu", "cuda"
    device_model: str = ""
    gain: float  # over the program before it
    low: float | None = None  # of the gain's 95 % interval
    high: float | None = None
    expected: float | None = None
    speedup: float | None = None  # of the program over eager
    over: str = "the program before it"
    bottleneck: str = ""  # of the program before, by its diagnosis
    precision: str = ""
    difference: str = ""  # what was changed in the program before, as a unified diff; "" where the programs are not at hand
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
        interval = f" [{self.low:.2f}, {self.high:.2f}]" if self.low is not None and self.high is not None else ""
        bound = f", which was {self.bottleneck} bound" if self.bottleneck and self.bottleneck not in ("none", "defect") else ""
        on = ", ".join(filter(None, (self.device_model or self.device, self.precision)))
        return f"- {self.strategy} on {where} ({on}): {self.gain:.2f}x{interval} over {self.over}{bound}{what}"

    @property
    def text(self) -> str:
        """The line, with the change itself where the programs are at hand."""
        from agents.roles.prompts import fenced  # roles import this module

        return f"{self.line}\n\n{fenced(self.difference, 'diff')}\n" if self.difference else self.line


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

    async def find() -> list[dict[str, Any]]:
        found = await port.find(operators_of(situation), situation.settings.device, exclude)
        return [inspiration.model_dump(mode="json") for inspiration in found]

    return [Inspiration.model_validate(row) for row in await span.effect("inspirations", find)]


def operators_of(situation: Situation) -> list[str]:
    """The task's operators in the words of plans, and which follows which."""
    return signature(situation.capture.graph if situation.capture else None)


def signature(graph: Graph | None) -> list[str]:
    """Describes a graph by its operators, and by "a > b" where b reads what a has made. Graphs are alike as far as they share these."""
    from compiler.graph.values import refs
    from compiler.planning.plan import word

    if graph is None:
        return []
    made = {node.name: node for node in graph.nodes}
    words: dict[str, None] = {}
    for node in graph.nodes:
        if node.op == "getitem":
            continue
        words[word(node)] = None
        for name in refs([node.args, list(node.kwargs.values())]):
            source = made.get(name)
            while source is not None and source.op == "getitem":
                source = made.get(source.args[0]["ref"])
            if source is not None:
                words[f"{word(source)} > {word(node)}"] = None
    return list(words)


Differ = Callable[[str, str], str]  # of two programs by their shas: a unified diff, or "" where they are not at hand


def inspirations_from(
    entries: Iterable[Entry], device_model: str = "", graph: Sequence[str] = (), difference: Differ = lambda before, after: ""
) -> list[Inspiration]:
    """Entries of a finished run that count as verified improvements. `graph`: the task's `signature`, for those of a whole program."""
    return [
        Inspiration(
            strategy=e.strategy, operators=e.operators, around=list(graph), device=e.device, device_model=device_model, gain=e.realised, low=e.low,
            high=e.high, over="the program before it" if e.before else "eager", expected=e.expected, bottleneck=e.bottleneck,
            precision=e.precision, difference=difference(e.before, e.program), speedup=e.speedup, changes=e.changes[:600], task=e.task,
            task_name=e.task_name, run=e.run, candidate=e.candidate,
        )
        for e in entries
        if e.confirmed and e.outcome == "gained" and e.realised is not None
    ]  # fmt: skip


def ranked(known: Iterable[Inspiration], operators: Sequence[str], device: str, limit: int = FOUND) -> list[Inspiration]:
    """Those of the same kind of device that share an operator; each strategy once, the one that fits and brought most."""
    wanted = {plain(name) for name in operators}
    family = device.partition(":")[0]

    def fit(one: Inspiration) -> float:
        """How alike the operators are; where both graphs are known, half of it how alike these are, which follows which included."""
        mine, graph = {plain(name) for name in one.operators}, {plain(name) for name in one.around}
        alone = {name for name in wanted if " > " not in name}
        if not mine & alone:
            return 0.0
        own = len(mine & alone) / len(mine | alone)
        return (own + len(graph & wanted) / len(graph | wanted)) / 2 if graph else own

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
            if not events or events[-1].kind != RunFinished.kind:
                return []
            found, verdicts = entries(events), [done for event in events if (done := event.of(VerificationFinished)) is not None]
        except (OSError, ValueError):  # `TraceDamaged` and what a payload is not
            return []
        folder = trace.parent
        model = _device_model(folder, next((done.result for done in verdicts if done.job == "verify" and done.result), None))
        return inspirations_from(found, model, signature(_graph(folder, verdicts)), lambda before, after: _difference(folder, before, after))


def _graph(folder: Path, verdicts: Sequence[VerificationFinished]) -> Graph | None:
    for done in verdicts:
        if done.job == "capture" and done.result is not None:
            try:
                found = json.loads((folder / ARTEFACTS / done.result.sha).read_bytes()).get("capture") or {}
                return Graph.model_validate(found["graph"]) if found.get("graph") else None
            except (OSError, ValueError, KeyError):
                return None
    return None


def _difference(folder: Path, before: str, after: str) -> str:
    """Returns the diff of two programs that the run keeps, without the build helper that both hold."""
    try:
        texts = [(folder / ARTEFACTS / sha).read_text(encoding="utf-8") for sha in (before, after) if sha]
    except (OSError, ValueError):
        return ""
    return between(*texts) if len(texts) == 2 else ""


def between(before: str, after: str) -> str:
    """At most DIFFERENCE lines: more teaches nothing that the sentence does not."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=2))
    return "\n".join(lines) if len(lines) <= DIFFERENCE else ""


def _device_model(folder: Path, result: ArtefactRef | None) -> str:
    try:
        report = json.loads((folder / ARTEFACTS / result.sha).read_bytes()).get("report") if result else None
    except (OSError, ValueError):
        return ""
    return str(((report or {}).get("environment") or {}).get("device_model", ""))
