"""The corpus: one file per program, whose header states which verdict it must receive and why. This module reads such files and compares them with
the verifier's reports."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tests.integrity.renaming import renamed
from verifier.client import Verifier
from verifier.integrity.static import inspect_source
from verifier.jobs import VerifyJob
from verifier.limits import GIB, Limits
from verifier.report import Class, Finding, Report, Status, Tier
from verifier.task import Mode, Precision

HOME = Path(__file__).resolve().parent
ROOT = HOME.parents[1]
Kind = Literal["cheats", "honest"]
Form = Literal["as is", "static off", "renamed"]
FORMS: tuple[Form, ...] = get_args(Form)
DEVICES = ("cpu", "cuda", "any")
DEFENCES = ("static", "runtime", "design")
LIMITS = Limits(load=20, inputs=10, call=6, build=120, correctness=8, quick_timing=0.5, memory=6 * GIB)
GPU_LIMITS = dataclasses.replace(LIMITS, call=10.0, build=300.0, quick_timing=1.0, memory=16 * GIB)
ATTEMPTS = {"cheats": 3, "honest": 6}  # a verdict that reports only that the machine was too busy is requested again
PATIENCE = 300.0  # seconds for one verification
AFTER_THE_CLOCK = ("passed", "inconclusive", "not faster", "class ")
_FIELD = re.compile(r"#\s*([a-z]+):\s*(.+?)\s*$")
_FIELDS = {
    "cheats": {"hack", "task", "device", "verdict", "because", "defence", "precision", "mode", "tier", "call", "says"},
    "honest": {"task", "device", "verdict", "because", "precision", "mode", "tier", "call", "says"},
}
_NEEDED = {"cheats": {"hack", "task", "device", "verdict", "because", "defence", "says"}, "honest": {"task", "device", "says"}}


class HeaderError(ValueError):
    """Raised if a corpus file's header cannot be used; the message names the file and the field."""


@dataclass(frozen=True)
class Entry:
    """One program in the corpus. `hack` is its number in the taxonomy, or "design" for an attack on the verifier's own pair of processes."""

    path: Path
    kind: Kind
    source: str
    task: Path
    device: str
    verdicts: tuple[str, ...]
    because: str
    defence: str
    hack: str
    precision: Precision
    mode: Mode
    tier: Tier
    call: float  # seconds that one call may take; a program that compiles in its first call needs more
    says: str

    @property
    def name(self) -> str:
        return self.path.stem

    def runs_on(self, device: str) -> bool:
        """Returns `device` in the form that a verifier takes: "cpu" or "cuda:0"."""
        return self.device == "any" or self.device == device.split(":")[0]

    @property
    def forms(self) -> tuple[Form, ...]:
        """Returns the forms of a program. A cheat that is revealed by more than its text is also tried with the static stage off, and under other
        names."""
        return ("as is",) if self.kind == "honest" or self.defence == "static" else FORMS

    @property
    def short_forms(self) -> tuple[Form, ...]:
        """Returns the forms run by `make test-all`: the hardest one, and the unchanged source if the static stage rejects it."""
        if self.forms == ("as is",):
            return self.forms
        refused = any(finding.severity == "refuse" for finding in inspect_source(ast.parse(self.source), self.source))
        return ("as is", "renamed") if refused else ("renamed",)


def read_entry(path: Path) -> Entry:
    """Reads the entries. Raises `HeaderError` with all errors."""
    kind: Kind = "cheats" if path.parent.name == "cheats" else "honest"
    source = path.read_text(encoding="utf-8")
    fields: dict[str, str] = {}
    wrong: list[str] = []
    for line in source.splitlines():
        if not line.startswith("#"):
            break
        match = _FIELD.match(line)
        if match is None:
            wrong.append(f"a header line is no `# field: value`: {line!r}")
        elif match[1] not in _FIELDS[kind]:
            wrong.append(f"there is no field {match[1]!r}")
        elif match[1] in fields:
            wrong.append(f"{match[1]} stands twice")
        else:
            fields[match[1]] = match[2]
    wrong += [f"the field {name!r} is missing" for name in sorted(_NEEDED[kind] - set(fields))]
    task = HOME / fields.get("task", "")
    if "task" in fields and not task.is_file():
        wrong.append(f"there is no task {fields['task']}")
    verdicts = tuple(part.strip() for part in fields.get("verdict", "passed").split("|"))
    wrong += [f"{verdict!r} is no verdict" for verdict in verdicts if not _is_verdict(verdict)]
    choices = {"device": DEVICES, "defence": DEFENCES, "precision": get_args(Precision), "mode": get_args(Mode), "tier": get_args(Tier)}
    wrong += [
        f"{name} is {fields[name]!r}; it must be one of {', '.join(allowed)}"
        for name, allowed in choices.items()
        if fields.get(name, allowed[0]) not in allowed
    ]
    hack = fields.get("hack", "")
    if hack and hack != "design" and not (hack.isdigit() and 1 <= int(hack) <= 73):
        wrong.append(f"hack is {hack!r}; it must be a number of the taxonomy (1 to 73) or design")
    if hack and not path.stem.startswith(f"{int(hack):02d}_" if hack.isdigit() else "design_"):
        wrong.append(f"the file of hack {hack} must begin with {f'{int(hack):02d}_' if hack.isdigit() else 'design_'}")
    if not re.fullmatch(r"\d+(\.\d+)?", fields.get("call", "1")):
        wrong.append(f"call is {fields['call']!r}; it must be a number of seconds")
    try:
        re.compile(fields.get("because", ""))
    except re.error as error:
        wrong.append(f"because is no regular expression: {error}")
    if wrong:
        raise HeaderError(f"{path.name}: " + "; ".join(wrong))
    return Entry(
        path=path,
        kind=kind,
        source=source,
        task=task,
        device=fields["device"],
        verdicts=verdicts,
        because=fields.get("because", ""),
        defence=fields.get("defence", ""),
        hack=hack,
        precision=fields.get("precision", "fp32-strict"),  # type: ignore[arg-type]
        mode=fields.get("mode", "train"),  # type: ignore[arg-type]
        tier=fields.get("tier", "quick"),  # type: ignore[arg-type]
        call=float(fields.get("call", LIMITS.call)),
        says=fields["says"],
    )


def read_corpus(kind: str = "all") -> list[Entry]:
    """Returns all entries, grouped by task, because the reference of a task is kept for the next program."""
    kinds = ("cheats", "honest") if kind == "all" else (kind,)
    entries = [read_entry(path) for name in kinds for path in sorted((HOME / name).glob("*.py"))]
    return sorted(entries, key=lambda entry: (entry.task.name, entry.precision, entry.mode, entry.name))


def refusals(entry: Entry) -> list[Finding]:
    return [finding for finding in inspect_source(ast.parse(entry.source), entry.source) if finding.severity == "refuse"]


def is_timed(entry: Entry, form: Form) -> bool:
    """Returns whether the evaluation gets as far as timing: other verdicts end it earlier, as does the static stage."""
    if entry.kind == "cheats" and form == "as is":
        return not refusals(entry)
    return any(verdict.startswith(AFTER_THE_CLOCK) for verdict in entry.verdicts) or "timed" in f"{entry.name} {entry.because}"


def _is_verdict(text: str) -> bool:
    return text in get_args(Status) or text == "not faster" or text in {f"class {name}" for name in get_args(Class)}


@dataclass
class Outcome:
    """The verdict on one form of a program, and whether it is the one that its header requires."""

    name: str
    kind: str
    form: Form
    device: str
    ok: bool
    status: str  # from the report, or "error" if there is none
    program_class: str | None = None
    message: str = ""
    matched: str = ""  # the evidence that matches `because`
    expected: str = ""
    speedup: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    stages: dict[str, float] = field(default_factory=dict)
    margins: dict[str, float] = field(default_factory=dict)  # error / bound for each trial that has both


def outcome_row(entry: Entry, outcome: Outcome) -> dict[str, Any]:
    """Returns an outcome as result files store it."""
    return dataclasses.asdict(outcome) | {"hack": entry.hack, "defence": entry.defence, "task": entry.task.stem, "says": entry.says}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ok = sum(row["ok"] for row in rows)
    return {"cores": os.cpu_count(), "done": len(rows), "ok": ok, "misses": len(rows) - ok, "rows": rows}


def evidence(report: Report) -> list[str]:
    """Yields every sentence that explains a report."""
    speedup = report.against("eager")
    return [
        *([report.message] if report.message else []),
        *(f"{finding.rule}: {finding.message}" for finding in report.findings),
        *(f"{trial.name}: {trial.detail}" for trial in report.trials if not trial.ok),
        *(f"flag: {flag}" for flag in report.flags),
        *([f"class: {report.program_class}, own share {report.own_share}"] if report.program_class else []),
        *([f"speedup: {speedup.speedup.ratio:.2f} [{speedup.speedup.low:.2f}, {speedup.speedup.high:.2f}]"] if speedup else []),
    ]


def meets(report: Report, verdict: str) -> bool:
    if verdict.startswith("class "):
        return report.status == "passed" and report.program_class == verdict.removeprefix("class ")
    if verdict == "not faster":
        eager = report.against("eager")
        return report.status == "inconclusive" or (report.status == "passed" and eager is not None and eager.speedup.low <= 1)
    return report.status == verdict


def judged(entry: Entry, form: Form, report: Report) -> tuple[bool, str]:
    """Returns whether a report is what the header requires, and the evidence for the stated reason."""
    said = evidence(report)
    if form == "as is" and entry.kind == "cheats" and entry.defence != "static" and report.status == "rejected":
        refusing = [finding for finding in report.findings if finding.severity == "refuse" and finding.source == "static"]
        if refusing:
            return True, f"{refusing[0].rule}: {refusing[0].message}"
    matched = next((text for text in said if re.search(entry.because, text)), "") if entry.because else ""
    return any(meets(report, verdict) for verdict in entry.verdicts) and (bool(matched) or not entry.because), matched


class Desk:
    """Verifiers on one device, kept warm for many entries: one complete, and one with the static stage off. `prepare` fills the data directory of
    each."""

    def __init__(
        self, device: str, data_dir: Path, limits: Limits | None = None, spares: int = 2, prepare: Callable[[Path], Path] = lambda folder: folder
    ):
        self.device = device
        self.loop = asyncio.new_event_loop()
        self.data_dir = data_dir
        self.limits = limits or (LIMITS if device == "cpu" else GPU_LIMITS)
        self.spares = spares
        self.prepare = prepare
        self._verifiers: dict[tuple[bool, float], Verifier] = {}

    def _verifier(self, off: bool, call: float) -> Verifier:
        """Returns the verifier for these limits; a third one replaces the most recent."""
        key = (off, max(call, self.limits.call))
        if key not in self._verifiers:
            for other in [other for other in self._verifiers if other[1] != self.limits.call]:
                self.loop.run_until_complete(self._verifiers.pop(other).close())
            limits = dataclasses.replace(self.limits, call=key[1], correctness=max(self.limits.correctness, key[1] / 2))
            folder = self.data_dir / ("off" if off else "on")
            folder = folder if folder.exists() else self.prepare(folder)
            self._verifiers[key] = Verifier(self.device, folder, limits=limits, spares=self.spares, without_static=off)
        return self._verifiers[key]

    def check(self, entry: Entry, form: Form = "as is") -> Outcome:
        task = entry.task.read_text(encoding="utf-8")
        source = renamed(entry.source, task) if form == "renamed" else entry.source
        job = VerifyJob(task_source=task, program_source=source, tier=entry.tier, precision=entry.precision, mode=entry.mode)
        verifier = self._verifier(form != "as is", entry.call)
        begin = time.monotonic()
        outcome = Outcome(entry.name, entry.kind, form, self.device, False, "error", expected=" | ".join(entry.verdicts))
        for attempt in range(1, ATTEMPTS[entry.kind] + 1):
            outcome.attempts = attempt
            try:
                result = self.loop.run_until_complete(asyncio.wait_for(verifier.run(job), PATIENCE))
            except TimeoutError:
                outcome.message = f"no verdict within {PATIENCE:g} s"
                continue
            if result.report is None:
                outcome.message = result.error
                continue
            report = result.report
            outcome.ok, outcome.matched = judged(entry, form, report)
            outcome.status, outcome.program_class, outcome.message = report.status, report.program_class, report.message
            outcome.stages = {stage.name: stage.seconds for stage in report.stages}
            outcome.margins = {trial.name: round(trial.error / trial.bound, 4) for trial in report.trials if trial.error is not None and trial.bound}
            eager = report.against("eager")
            outcome.speedup = round(eager.speedup.ratio, 3) if eager else None
            if outcome.ok or report.status not in ("inconclusive", "infrastructure_error"):
                break
        outcome.seconds = round(time.monotonic() - begin, 2)
        return outcome

    def close(self) -> None:
        for verifier in self._verifiers.values():
            self.loop.run_until_complete(verifier.close())
        self.loop.close()
