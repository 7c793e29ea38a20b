"""Memory across runs: confirmed improvements, looked up by operators and device, and withheld while their benchmark is being scored.

Only results confirmed in the full tier are used (KernelArc's rule: verified conclusions only). The results are journalled as an effect of the span
that requested them, so a resumed run sees the same inspirations even if more runs have finished in the meantime.
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
from agents.roles.prompts import fenced
from agents.strategies.ledger import GAIN, Entry, entries
from verifier.graph import Graph
from verifier.source import sha256

if TYPE_CHECKING:
    from agents.roles.situation import Situation
    from agents.span import Span

FOUND = 4  # inspirations per search
DIFFERENCE = 120  # longest change that is shown in full, in lines


class Split(BaseModel):
    """The part of a benchmark that is being scored. Nothing learned on its tasks may be recalled."""

    model_config = ConfigDict(frozen=True)

    tasks: frozenset[str] = frozenset()  # sha of their sources
    suites: frozenset[str] = frozenset()  # suite names

    def holds(self, task: str, suites: Iterable[str] = ()) -> bool:
        return task in self.tasks or not self.suites.isdisjoint(suites)


class Inspiration(BaseModel):
    """A confirmed improvement from a finished run."""

    strategy: str
    operators: list[str]
    around: list[str] = []  # signature of the surrounding task's graph; empty if unknown
    device: str  # "cpu", "cuda"
    device_model: str = ""
    gain: float  # gain over the parent program
    low: float | None = None  # lower end of the gain's 95 % interval
    high: float | None = None
    expected: float | None = None
    speedup: float | None = None  # speedup of the program over eager
    over: str = "the program before it"
    bottleneck: str = ""  # bottleneck of the parent program, from its diagnosis
    precision: str = ""
    difference: str = ""  # unified diff against the parent program; "" if the programs are not available
    changes: str = ""  # the change, in one sentence
    task: str = ""  # sha of the task's source
    task_name: str = ""
    run: str = ""
    candidate: int = 0

    @property
    def line(self) -> str:
        """Returns one line for a prompt: the change, where it was confirmed, and its gain."""
        where = ", ".join(dict.fromkeys(self.operators)) or "a whole program"
        what = f": {' '.join(self.changes.split())}" if self.changes else ""
        interval = f" [{self.low:.2f}, {self.high:.2f}]" if self.low is not None and self.high is not None else ""
        bound = f", which was {self.bottleneck} bound" if self.bottleneck and self.bottleneck not in ("none", "defect") else ""
        on = ", ".join(filter(None, (self.device_model or self.device, self.precision)))
        return f"- {self.strategy} on {where} ({on}): {self.gain:.2f}x{interval} over {self.over}{bound}{what}"

    @property
    def text(self) -> str:
        """Returns the same line, followed by the change itself if the programs are available."""
        return f"{self.line}\n\n{fenced(self.difference, 'diff')}\n" if self.difference else self.line


class Inspirations(Protocol):
    """A source of confirmed improvements from earlier runs: a team's database, or a folder of finished runs."""

    async def find(self, operators: Sequence[str], device: str, exclude: Split) -> list[Inspiration]:
        """Returns at most FOUND matches, best first. `device` is "cpu", "cuda" or a specific one such as "cuda:0"."""


async def recall(span: Span, situation: Situation) -> list[Inspiration]:
    """Returns the inspirations from earlier runs for this task, as an effect of `span`, or an empty list if no source is connected."""
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
    """Returns the task's operators under the names that plans use, and the pairs in which one follows another."""
    return signature(situation.capture.graph if situation.capture else None)


def signature(graph: Graph | None) -> list[str]:
    """Describes a graph by its operators and by "a > b" for each operator b that reads the output of a. The more entries two graphs have in common,
    the more similar they are."""
    from compiler.graph.values import refs  # command lines name inspirations' folders without the compiler, which takes seconds to load
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


Differ = Callable[[str, str], str]  # takes the shas of two programs and returns a unified diff, or "" if the programs are not available


def inspirations_from(
    entries: Iterable[Entry], device_model: str = "", graph: Sequence[str] = (), difference: Differ = lambda before, after: ""
) -> list[Inspiration]:
    """Returns the confirmed improvements from a finished run's entries. `graph`: the task's `signature`, for entries about a whole program."""
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
    """Returns improvements that come from the same kind of device and share an operator. For each strategy, returns only the best match with the
    largest gain."""
    wanted = {plain(name) for name in operators}
    family = device.partition(":")[0]

    def fit(one: Inspiration) -> float:
        """Returns how similar the operators are. If both graphs are known, their similarity, which includes the order of operators, is half of the
        score."""
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
    """Returns the plain name of an operator: "layer_norm", "Layer norm" and "layer norm" are the same operator."""
    return name.replace("_", " ").strip().casefold()


class FolderInspirations:
    """Confirmed improvements from the finished runs in a folder, as written by `python -m agents solve --out`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._read: dict[Path, tuple[float, list[Inspiration]]] = {}

    async def find(self, operators: Sequence[str], device: str, exclude: Split) -> list[Inspiration]:
        # A run on disk does not record its suite, so the tasks of the split are recognised by their sources.
        return ranked([one for one in self._all() if not exclude.holds(one.task)], operators, device)

    def _all(self) -> list[Inspiration]:
        found: list[Inspiration] = []
        for trace in sorted(self.folder.rglob(TRACE)):
            try:
                changed = trace.stat().st_mtime
            except FileNotFoundError:  # the run was removed in the meantime
                continue
            if self._read.get(trace, (None,))[0] != changed:
                self._read[trace] = changed, self._of(trace)
            found += self._read[trace][1]
        return found

    @staticmethod
    def _of(trace: Path) -> list[Inspiration]:
        """Returns the improvements of one run. Returns none if the run is in progress or cannot be read, so that one bad run does not stop the
        others."""
        try:
            data = trace.read_bytes()
            events = parse_lines(data[: data.rfind(b"\n") + 1].splitlines())
            if not events or events[-1].kind != RunFinished.kind:
                return []
            found, verdicts = entries(events), [done for event in events if (done := event.of(VerificationFinished)) is not None]
        except (OSError, ValueError):  # `TraceDamaged`, and errors from invalid payloads
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
    """Returns the diff of two programs stored with the run, without the build helper that both contain."""
    try:
        texts = [(folder / ARTEFACTS / sha).read_text(encoding="utf-8") for sha in (before, after) if sha]
    except (OSError, ValueError):
        return ""
    return between(*texts) if len(texts) == 2 else ""


def between(before: str, after: str) -> str:
    """Returns the diff, or "" if it is longer than DIFFERENCE lines, because a longer diff would add nothing to the sentence."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=2))
    return "\n".join(lines) if len(lines) <= DIFFERENCE else ""


def _device_model(folder: Path, result: ArtefactRef | None) -> str:
    try:
        report = json.loads((folder / ARTEFACTS / result.sha).read_bytes()).get("report") if result else None
    except (OSError, ValueError):
        return ""
    return str(((report or {}).get("environment") or {}).get("device_model", ""))
