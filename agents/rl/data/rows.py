"""Creates training rows from a run's trace: a task with a program that passed (skill 1), or a program with its diagnosis and a better program (skill
2)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from agents.events import Event
from agents.payloads import artefact
from agents.projection import CandidateRow, Summary, project
from agents.rl.data.scrub import Scrubber
from agents.rl.reward import score
from agents.rl.rubric import Before, Skill, gain
from verifier.jobs import JobResult
from verifier.profiling.diagnosing.diagnosis import Diagnosis
from verifier.report import Report
from verifier.source import sha256

Kind = Literal["write", "repair", "optimise"]
GAINED = 1.0  # a program counts as better if the lower end of its gain reaches this value
LONGEST_FEEDBACK = 4000  # characters
LEFT_OUT = frozenset({"hack", "retracted", "questioned"})  # human verdicts that exclude a candidate


@dataclass(frozen=True)
class RunTrace:
    """A finished run: its events, its artefacts keyed by hash, and the person who consented to its use for training."""

    events: Sequence[Event]
    artefact: Callable[[str], bytes]
    agreement: str
    origin: str  # "trace" or "database"
    verdicts: Mapping[int, str] = field(default_factory=dict)  # verdicts given by people, keyed by candidate


@dataclass(frozen=True)
class DataRow:
    """One row, which is flat so that every field becomes a Parquet column. These fields contain JSON as text: `diagnosis_before`, `report_before`,
    `report`, `components`."""

    id: str
    skill: Skill
    kind: Kind
    split: str
    task_name: str
    task_sha: str
    task: str
    program_sha: str
    program: str
    before_sha: str
    before: str
    status_before: str
    feedback: str
    diagnosis_before: str
    report_before: str
    quality: str  # "found" for programs of a run; "tuned", "slow", "wrong" or "cheat" for synthetic programs
    status: str
    tier: str
    speedup_low: float | None
    speedup_ratio: float | None
    own_share: float | None
    program_class: str
    reward: float | None
    components: str
    report: str
    device_name: str
    device_model: str
    torch: str
    cuda: str
    precision: str
    mode: str
    clock: int | None
    origin: str
    run: str
    candidate: int | None
    strategy: str
    coder: str
    agreement: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Judged:
    row: CandidateRow
    source: str
    report: Report

    @property
    def before(self) -> Before:
        return Before(self.report, diagnosis_of(self.row))


def rows_of(trace: RunTrace, scrubber: Scrubber, skipped: Callable[[str], None] = lambda why: None) -> Iterator[DataRow]:
    """Yields the rows of a trace. `skipped` is called with the reason whenever a program is left out. Raises `KeyError` if an artefact is missing and
    `ValueError` for an invalid trace."""
    summary = project(trace.events)
    if summary.state != "finished":
        skipped("the run has not finished")
        return
    task = trace.artefact(artefact(summary.started.source)).decode()
    if scrubber.secret(task):
        skipped("the task contains a key")
        return
    judged: dict[int, _Judged] = {}
    for candidate in summary.candidates:
        found = _judged(candidate, trace, task, scrubber)
        if isinstance(found, str):
            skipped(found)
            continue
        judged[candidate.number] = found
    writer = _Writer(trace, summary, task, scrubber)
    for number, one in judged.items():
        if one.report.status != "passed":
            continue
        yield writer.row(one, None, "write")
        parent = judged.get(one.row.parent) if one.row.parent is not None else None
        if parent is not None and parent.row.sha != one.row.sha:
            kind: Kind = "repair" if parent.report.status != "passed" else "optimise"
            if kind == "repair" or gain(one.report, parent.report) > GAINED:
                yield writer.row(one, parent, kind)
            else:
                skipped(f"candidate {number} is not better than its predecessor beyond the intervals")


def _judged(candidate: CandidateRow, trace: RunTrace, task: str, scrubber: Scrubber) -> _Judged | str:
    """Returns the candidate with its source and report, or the reason for leaving it out."""
    if candidate.report is None or candidate.program is None:
        return f"candidate {candidate.number} has no verdict"
    if trace.verdicts.get(candidate.number) in LEFT_OUT:
        return f"candidate {candidate.number}: people's verdict is {trace.verdicts[candidate.number]}"
    source = trace.artefact(candidate.program.sha).decode()
    if scrubber.secret(source):
        return f"candidate {candidate.number}: the program contains a key"
    result = JobResult.model_validate_json(trace.artefact(candidate.report.sha))
    report = result.report
    if report is None or report.without_static or report.status in ("infrastructure_error", "inconclusive", "timed_out"):
        return f"candidate {candidate.number}: its verdict says nothing about the program"
    if report.program != sha256(source) or report.task != sha256(task):
        return f"candidate {candidate.number}: the report is of another program"
    return _Judged(candidate, source, report)


class _Writer:
    def __init__(self, trace: RunTrace, summary: Summary, task: str, scrubber: Scrubber):
        self.trace, self.summary, self.task, self.scrubber = trace, summary, task, scrubber

    def row(self, one: _Judged, parent: _Judged | None, kind: Kind) -> DataRow:
        skill: Skill = "write" if kind == "write" else "improve"
        report, clean = one.report, self.scrubber
        before = parent.before if parent else None
        scored = score(report, self.task, one.source, skill, before=before, diagnosis=diagnosis_of(one.row))
        name = clean.text(self.summary.task.name)
        key = ":".join([skill, kind, report.task, report.program, parent.row.sha if parent else "", self.summary.run])
        return DataRow(
            id=hashlib.sha256(key.encode()).hexdigest()[:24],
            skill=skill,
            kind=kind,
            task_name=name,
            task=self.task,
            program=one.source,
            before_sha=parent.report.program if parent else "",
            before=parent.source if parent else "",
            status_before=parent.report.status if parent else "",
            feedback=clean.text(feedback(parent.report))[:LONGEST_FEEDBACK] if parent else "",
            diagnosis_before=clean.text(json.dumps(parent.row.diagnosis.written())) if parent and parent.row.diagnosis else "",
            report_before=slim_json(parent.report, clean) if parent else "",
            quality="found",
            reward=scored.reward,
            components=clean.text(scored.line()),
            origin=self.trace.origin,
            run=self.summary.run,
            candidate=one.row.number,
            strategy=clean.text(one.row.strategy),
            coder=clean.text(self.summary.started.coder),
            agreement=clean.text(self.trace.agreement),
            **figures(report, clean),
        )


def figures(report: Report, scrubber: Scrubber) -> dict[str, Any]:
    """Returns the parts of a row that describe the verdict and where it was measured, regardless of who wrote the program."""
    speed, environment = report.speedup, report.environment
    return {
        "split": "",
        "task_sha": report.task,
        "program_sha": report.program,
        "status": report.status,
        "tier": report.tier,
        "speedup_low": speed.low if speed else None,
        "speedup_ratio": speed.ratio if speed else None,
        "own_share": report.own_share,
        "program_class": report.program_class or "",
        "report": slim_json(report, scrubber),
        "device_name": environment.device_name,
        "device_model": environment.device_model,
        "torch": environment.torch,
        "cuda": environment.cuda or "",
        "precision": report.precision,
        "mode": report.mode,
        "clock": report.timing.clock if report.timing else None,
    }


def slim_json(report: Report, scrubber: Scrubber) -> str:
    """Returns the report, scrubbed and without raw samples and seed; it is still a valid report."""
    slim = report.model_dump(mode="json", exclude={"seed"})
    timing = slim["timing"] or {"comparisons": []}
    for comparison in [*timing["comparisons"], *([timing["rival"]] if timing.get("rival") else [])]:
        comparison["program_samples_ms"] = comparison["baseline_samples_ms"] = []
    return json.dumps(scrubber.value(slim), allow_nan=False)


def feedback(report: Report) -> str:
    """Returns the feedback on a program's verdict for its author: the sentence, the compiler output, the failed trial, and the findings."""
    lines = [report.message]
    if report.status == "build_failed" and report.build is not None:
        lines.append(report.build.compiler_output)
    failed = next((trial for trial in report.trials if not trial.ok), None)
    if failed is not None:
        lines.append(f"{failed.name}: {failed.detail}")
    lines += [f"{f.rule}: {f.message}" for f in report.findings if f.severity != "note"]
    return "\n".join(line for line in lines if line)


def diagnosis_of(candidate: CandidateRow) -> Diagnosis | None:
    """Returns the candidate's diagnosis, or None if there is none or if it comes from an earlier version with different wording."""
    try:
        return Diagnosis.model_validate(candidate.diagnosis.written()) if candidate.diagnosis else None
    except ValueError:
        return None
