"""The notes that a report attaches to individual lines: findings, errors, warnings, and each kernel's resources and time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from verifier.report import Report
from webapp.diffs.anatomy import Anatomy, anatomy

MAX_WARNINGS = 40
_OUTPUT = re.compile(
    r"^(?P<file>[^\s:(]+)[:(](?P<line>\d+)\)?(?::\d+)?:?\s*(?P<what>(?:fatal )?error|warning|note|remark)\b[^:]*:\s*(?P<text>.*)$", re.IGNORECASE
)
_EXCERPT = re.compile(r"^\s*\d+ \| ?(.*)$")
_TONES = {"refuse": "bad", "downgrade": "warn", "note": "info"}
_SIGNS = {"bad": "✕", "warn": "▲", "info": "i", "use": "▤", "time": "◷"}


@dataclass(frozen=True)
class Note:
    """A note on a line. The `use` tone marks the resources that the compiler assigned to a kernel, and the `time` tone marks a measured time. The
    other tones express severity."""

    tone: Literal["bad", "warn", "info", "use", "time"]
    text: str

    @property
    def sign(self) -> str:
        return _SIGNS[self.tone]

    @property
    def grave(self) -> bool:
        """Returns whether the line must never be folded."""
        return self.tone in ("bad", "warn")


Notes = dict[int, list[Note]]  # keyed by line, 1-based


def line_notes(report: Report | None, source: str) -> Notes:
    notes: Notes = defaultdict(list)
    if report is None:
        return notes
    body = anatomy(source)
    for finding in report.findings:
        if finding.line:
            notes[finding.line].append(Note(_TONES[finding.severity], f"{finding.severity}: {finding.message} ({finding.rule})"))  # type: ignore[arg-type]  # as listed
    for problem in report.problems:
        if problem.line:
            notes[problem.line].append(Note("bad", f"{problem.message}{f': {problem.hint}' if problem.hint else ''}"))
    for line, note in _said_by_compiler(report.build.compiler_output if report.build else "", body):
        if note.text not in "\n".join(known.text for known in notes[line]):
            notes[line].append(note)
    for operator in report.torch_compute:
        if operator.line:
            share = f", {operator.share:.0%} of the time" if operator.share is not None else ""
            notes[operator.line].append(Note("info", f"{operator.name} is computed by PyTorch{share}"))
    for name, text in _resources(report):
        if found := body.definition_of(name):
            notes[_line_of(found.begin, body, name)].append(Note("use", text))
    for name, text in _times(report):
        if found := body.definition_of(name):
            notes[_line_of(found.begin, body, name)].append(Note("time", text))
    return notes


def bare_name(kernel: str) -> str:
    """Returns a kernel's source name, given the name that profilers print: "void ns::scale<float, 4>(float*)" becomes "scale"."""
    return re.split(r"[<(]", kernel.removeprefix("void ").strip(), maxsplit=1)[0].rpartition("::")[2].split(" ")[-1]


def _line_of(begin: int, body: Anatomy, name: str) -> int:
    """Returns the 1-based line that holds the name of a definition. Templates, attributes and decorators come before it."""
    lines = body.source.split("\n")
    word = re.compile(rf"\b{re.escape(name)}\b")
    return next((number for number in range(begin + 1, min(begin + 12, len(lines)) + 1) if word.search(lines[number - 1])), begin + 1)


def _resources(report: Report) -> Iterator[tuple[str, str]]:
    """Returns one sentence per kernel. Instances of a template share a sentence, which gives the range of each figure."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in report.build.resources if report.build else []:
        if name := row.get("kernel") or row.get("function"):
            rows[bare_name(str(name))].append(row)
    for name, same in rows.items():
        parts = []
        for key, unit in (("registers", " registers"), ("shared_bytes", " B shared memory"), ("stack_bytes", " B stack")):
            parts += _figure([row[key] for row in same if isinstance(row.get(key), (int, float))], unit)
        stored = [row["spill_store_bytes"] for row in same if isinstance(row.get("spill_store_bytes"), (int, float))]
        parts += ["no spills"] if stored and not max(stored) else _figure(stored, " B spilled")
        parts += _figure([row["occupancy"] * 100 for row in same if isinstance(row.get("occupancy"), (int, float))], " % occupancy at most")
        parts += _figure([row["bytes"] for row in same if isinstance(row.get("bytes"), (int, float))], " B of machine code")
        if parts:
            yield name, f"{name}: {', '.join(parts)}{f' ({len(same)} instances)' if len(same) > 1 else ''}"


def _figure(values: list[Any], unit: str) -> list[str]:
    if not values or not max(values):
        return []
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return [f"{low}{unit}" if low == high else f"{low} to {high}{unit}"]


def _times(report: Report) -> Iterator[tuple[str, str]]:
    seen: dict[str, list[Any]] = defaultdict(list[Any])
    for kernel in report.kernels:
        if kernel.own:
            seen[bare_name(kernel.name)].append(kernel)
    for name, same in seen.items():
        ms, share, calls = (sum(getattr(kernel, what) for kernel in same) for what in ("ms", "share", "calls"))
        yield name, f"{name}: {_time(ms)} of a call, {share:.0%} of the time on the device, {calls:.3g} launch{'' if calls == 1 else 'es'}"


def _time(ms: float) -> str:
    return f"{ms * 1000:.3g} µs" if ms < 1 else f"{ms:.3g} ms"


def _said_by_compiler(output: str, body: Anatomy) -> Iterator[tuple[int, Note]]:
    """Returns the warnings and errors that can be attributed to a line of the program. Each compilation unit is one of its strings."""
    lines = output.splitlines()
    count = 0
    for index, text in enumerate(lines):
        match = _OUTPUT.match(text)
        if match is None or count == MAX_WARNINGS:
            continue
        following = lines[index + 1] if index + 1 < len(lines) else ""
        excerpt = _EXCERPT.match(following)
        line = _program_line(body, int(match["line"]), (excerpt[1] if excerpt else following).strip())
        if line:
            count += 1
            what = match["what"].lower()
            yield line, Note("bad" if "error" in what else "warn" if what == "warning" else "info", f"compiler {what}: {match['text']}")


def _program_line(body: Anatomy, number: int, shown: str) -> int:
    """Returns the 1-based program line that corresponds to line `number` of a unit, or 0 if it cannot be determined. The compiler's source excerpt
    identifies the string."""
    lines = body.source.split("\n")
    possible = []
    for begin, end in body.native:
        line = body.line_at(begin) + number
        if line <= body.line_at(end) + 1:
            possible.append(line)
    fitting = [line for line in possible if shown and lines[line - 1].strip() == shown]
    return fitting[0] if fitting else possible[0] if len(possible) == 1 and len(body.native) == 1 else 0
