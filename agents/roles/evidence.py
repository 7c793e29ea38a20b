"""Explains to a program's author why it did not pass: what happened, where, and which source lines are involved."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agents.roles.edits import helper
from agents.roles.names import whole_items
from agents.roles.prompts import fenced
from agents.roles.situation import Attempt
from agents.roles.wrong_rows import rows_text
from verifier.allocation import failed_allocation
from verifier.report import MOST_WRONG, Report, Trial, WrongTensor

BUILD_LINES = 40  # lines of compiler output
AROUND = 2  # number of context lines around each named line of the program
MOST_LINES = 6  # maximum number of named lines that are shown
MOST_OF_OTHERS = 0.25  # share of the device's memory


def tried_text(attempt: Attempt) -> str:
    """Explains what a program tried to change, and why it did not pass."""
    return f"The change that was tried: {attempt.edit.changes}\n{failure_text(attempt.verdict, attempt.edit.source)}"


def failure_text(report: Report, source: str) -> str:
    """Explains why a program did not pass: the verdict, the compiler errors, the failed trials and the integrity findings, with the source lines that
    they name."""
    message = report.message.replace("\n", "\n  ")  # indented, so that no line looks like a heading
    lines = [f"Status: {report.status}", f"Message: {message}"]
    named: list[int] = []
    for problem in report.problems[:6]:
        where = f"line {problem.line}: " if problem.line else ""
        lines.append(f"- problem: {where}{problem.message}" + (f"; {problem.hint}" if problem.hint else ""))
        named += [problem.line] if problem.line else []
    for stage in report.stages:
        if stage.status == "failed" and stage.detail and stage.detail not in report.message:
            lines.append(f"- stage {stage.name} failed: {stage.detail[:800]}")
    for finding in report.findings:
        if finding.severity != "note" or report.status == "rejected":
            where = f" (line {finding.line})" if finding.line else ""
            lines.append(f"- integrity finding {finding.rule}, {finding.severity}{where}: {finding.message[:600]}")
            named += [finding.line] if finding.line else []
    failed, passed = [t for t in report.trials if not t.ok], sum(t.ok for t in report.trials)
    for trial in failed[:3]:
        error = f": error {trial.error:.3g}, bound {trial.bound:.3g} ({trial.norm})" if trial.error is not None and trial.bound is not None else ""
        error += f", PyTorch's own error {trial.eager_error:.3g}" if trial.eager_error is not None else ""
        detail = "" if trial.detail in report.message else trial.detail[:500]  # the message repeats the first failed trial's detail
        lines.append(f"- trial {trial.name!r} failed{f' at {trial.output}' if trial.output else ''}{error}. {detail}".rstrip())
        lines += wrong_tensors(trial)
    if failed and passed:
        others = whole_items(", ".join(t.name for t in report.trials if t.ok), 300)
        lines.append(f"- {passed} other trial{'s' if passed != 1 else ''} passed: {others}. No further one was run")
    if held := held_by_others(report.message):
        lines.append(held)
    text = "\n".join(lines)
    if report.build is not None and report.status == "build_failed" and report.build.compiler_output:
        text += "\n\nCompiler:\n\n" + fenced(build_excerpt(report.build.compiler_output))
    if shown := named_lines(source, named):
        text += "\n\nThese lines of the program (numbers count the lines of stitch_build too):\n\n" + fenced(shown, "python")
    return text


def wrong_tensors(trial: Trial) -> list[str]:
    """Lists every tensor that is off in a trial, with its pattern, and the number of tensors compared, because a repair depends on which of them are
    correct."""
    if not trial.wrong:
        return []
    most = f"{trial.compared} outputs, inputs that the task changes, and buffers were compared"
    named = f"the first {len(trial.wrong)} that are off" if len(trial.wrong) == MOST_WRONG else f"{len(trial.wrong)} off, the others right"
    return [f"- in it, {most}: {named}", *(f"  - {wrong_tensor(part)}" for part in trial.wrong)]


def wrong_tensor(part: WrongTensor) -> str:
    error = f"; largest error {part.error:.3g}" if part.error is not None else ""
    bound = f"{',' if error else ';'} bound {part.bound:.3g}" if part.bound is not None else ""
    where = "".join(f"; {said}" for said in (part.where, rows_text(part)) if said)
    said = f"{part.name}: {part.wrong:,} of {part.elements:,}, first {part.first}: {part.value} instead of {part.expected}"
    return f"{said}{error}{bound}{where}"


def held_by_others(message: str) -> str:
    """States how much of a device's memory other processes held when an allocation failed. Returns "" if the message is about something else or those
    processes held little."""
    found = failed_allocation(message)
    if found is None or found.others < MOST_OF_OTHERS * found.total:
        return ""
    return (
        f"- {found.others:.1f} GiB of the device's {found.total:.1f} were held by other processes (the verifier's own, and other verifications) "
        f"when this allocation failed, and {found.own:.1f} GiB by this one. If it needs little more than its parameters, nothing in it is wrong."
    )


def build_excerpt(output: str) -> str:
    """Returns the compiler's errors, each with its context, or the end of the output if no error is marked."""
    lines = output.splitlines()
    if len(lines) <= BUILD_LINES:
        return output
    at = [i for i, line in enumerate(lines) if re.search(r"\b(error|fatal|undefined reference|Error:)\b", line)]
    kept = sorted({i + k for i in at[:8] for k in range(5) if i + k < len(lines)})[:BUILD_LINES]
    return "\n".join(lines[i] for i in kept) if kept else "\n".join(lines[-BUILD_LINES:])


def named_lines(source: str, lines: Sequence[int]) -> str:
    """Returns the lines that the evidence names, with the lines around them. Line numbers refer to the file with the build helper; lines inside the
    helper are left out."""
    text = source.splitlines()
    start = source[: source.find(helper())].count("\n") + 1 if helper() in source else 0
    hidden = range(start, start + helper().count("\n") + 1) if start else range(0)
    wanted = dict.fromkeys(line for line in lines if 0 < line <= len(text) and line not in hidden)
    kept = sorted(
        {n for line in list(wanted)[:MOST_LINES] for n in range(line - AROUND, line + AROUND + 1) if 0 < n <= len(text) and n not in hidden}
    )
    return "\n".join(f"{'>' if n in wanted else ' '} {n}: {text[n - 1]}" for n in kept)
