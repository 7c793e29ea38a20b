"""Formats output for a terminal: a line per event, a page per run, and a table for several runs."""

from __future__ import annotations

from collections.abc import Sequence

from agents.decisions.view import lines as tree_lines
from agents.events import Event
from agents.payloads import (
    CandidateProposed,
    Failure,
    LlmCompleted,
    LlmFailed,
    MessageCompleted,
    NoteAdded,
    PlanEdited,
    RunFinished,
    RunForked,
    RunPaused,
    RunResumed,
    RunStarted,
    SpanClosed,
    SpanOpened,
    TreeChanged,
    VerificationStage,
    WayChanged,
)
from agents.projection import CandidateRow, Summary, UsageRow
from agents.ways import WayRow, told
from verifier.report import Interval

SIGNS = {"ok": "+", "failed": "x"}  # symbols for a span that has ended


def line(event: Event) -> str | None:
    """Returns one line of progress, or None for an event that is not shown in a terminal."""
    indent = _indent(event)
    match event.body:
        case RunStarted() as p:
            return f"run {event.run}: {p.task.name} on {p.device}, {p.precision}, {p.mode} mode, workflow {p.workflow}"
        case RunPaused() | RunResumed() as p:
            return f"{p.kind.partition('.')[2]}: {p.reason}" + (f" ({p.hint})" if isinstance(p, RunPaused) and p.hint else "")
        case RunForked() as p:
            return f"forked from event {p.origin.seq} of run {p.origin.run}; changed: {', '.join(p.changed) or 'nothing'}"
        case LlmCompleted() as p:
            return f"{indent}  {event.agent} asked {p.profile} ({p.purpose}): {_counted(p)}, {p.seconds or 0:.1f} s"
        case LlmFailed() as p:
            return f"{indent}  {p.profile} did not answer ({p.kind_}): {p.message}"
        case NoteAdded() as p:
            return f"note to {p.to} by {p.by or 'somebody'}: {p.text}"
        case PlanEdited() as p:
            return f"the plan was edited by {p.by or 'somebody'}"
        case RunFinished() as p:
            return f"finished: {p.outcome.replace('_', ' ')}. {p.reason}"
        case SpanOpened() as p:
            return f"{indent}- {p.title}"
        case SpanClosed() as p:
            seconds = f" ({p.seconds:.1f} s)" if p.seconds is not None else ""
            return f"{indent}{SIGNS.get(p.status, 'o')} {p.summary or p.status}{seconds}"
        case MessageCompleted() as p:
            text = "(a long message, kept as an artefact)" if p.text is None else p.text
            return f"{indent}  {event.agent}: " + text.strip().replace("\n", f"\n{indent}      ")
        case CandidateProposed() as p:
            return f"{indent}  candidate {p.candidate}: {p.title}" + (f", by {p.author}" if p.author else "")
        case WayChanged() as p:
            return f"{indent}  branch {p.way} {told(p)}"
        case VerificationStage(status="failed") as p:
            return f"{indent}  {p.stage} failed: {p.detail[:300]}"
        case TreeChanged(what="edited") as p:
            return "\n".join(f"{indent}  {told}" for told in [*tree_lines(p), *(f"left out: {sentence}" for sentence in p.left_out)])
        case TreeChanged() as p:
            return f"{indent}  {p.reason}"
        case Failure() as p:
            return f"error in {p.where or 'the run'}: {p.message}"
    return None


def _counted(p: LlmCompleted) -> str:
    about = "about " if p.counted == "estimated" else ""
    counted = f"{about}{p.usage.input_tokens} tokens in, {p.usage.output_tokens} out" if p.usage else "tokens not counted"
    return counted + (f", ${p.dollars:.4g}" if p.dollars is not None else "")


def _indent(event: Event) -> str:
    return "  " * (1 + event.span.count("/"))


def interval(value: Interval | None) -> str:
    return f"{value.ratio:.2f}x [{value.low:.2f}, {value.high:.2f}]" if value else "-"


def page(summary: Summary) -> str:
    """Returns a description of a whole run: what was tried, the result, and the cost."""
    task = summary.task.name or "?"
    lines = [
        f"{task} · {summary.workflow} · {summary.device} · {summary.precision} · {summary.mode} mode",
        f"state {summary.state}" + (f", outcome {summary.outcome.replace('_', ' ')}: {summary.reason}" if summary.outcome else ""),
    ]
    if summary.pause:
        lines.append(f"paused: {why_paused(summary)}")
    if summary.forked:
        lines.append(f"forked from event {summary.forked.origin.seq} of run {summary.forked.origin.run}")
    if summary.flags:
        lines.append(f"flags: {', '.join(summary.flags)}")
    if summary.plan:
        lines += ["", f"plan: {summary.plan.summary}"]
        lines += [f"  {step.id}: {step.title} ({step.space})" + (f": {step.reason}" if step.reason else "") for step in summary.plan.steps]
    if summary.candidates:
        rows = [_candidate_row(c) for c in summary.candidates]
        lines += ["", columns(["#", "from", "status", "tier", "vs eager", "vs best baseline", "class", "changes"], rows)]
    if summary.ways:
        lines += ["", columns(["branch", "stands", "since round", "programs", "best"], [_way_row(summary, way) for way in summary.ways])]
        lines += [f"  branch {way.number} {told(step)}" for way in summary.ways for step in way.steps if not isinstance(step, int)]
    if summary.tree:
        lines += ["", f"tree of decisions, revision {summary.tree.revision}:", *(f"  {told}" for told in tree_lines(summary.tree)), ""]
    for decision in summary.decisions:
        made = decision.made
        if made.expected and made.realised:
            lines.append(f"{made.method}: expected {made.expected:.2f}x, realised {made.realised:.2f}x")
    if summary.usage:
        lines += [
            "",
            columns(["model", "role", "calls", "failed", "tokens in", "tokens out", "dollars", "seconds"], list(map(_usage_row, summary.usage))),
        ]
    if summary.spent:
        lines += ["", "spent: " + ", ".join(f"{unit.replace('_', ' ')} {value:g}" for unit, value in summary.spent.items() if value)]
    if summary.usage:
        lines.append(cost_of([summary]))
    return "\n".join(lines)


SOLVED = ("improved", "matched")


def cost_of(summaries: Sequence[Summary]) -> str:
    """Returns the model cost per solved task: total spending divided by the number of runs that ended with a passing program. "~" marks estimates."""
    rows = [row for summary in summaries for row in summary.usage]
    solved = sum(summary.outcome in SOLVED for summary in summaries)
    tokens = sum(row.input_tokens + row.output_tokens for row in rows)
    about = "~" if any(row.estimated for row in rows) else ""
    dollars = [row.dollars for row in rows if row.dollars is not None]
    price = f", {about}${sum(dollars):.4g}" if dollars and len(dollars) == len(rows) else ", price unknown"
    missing = ", some exchanges not counted" if any(row.uncounted for row in rows) else ""
    if not solved:
        return f"cost: {about}{tokens:,} tokens{price}{missing}; nothing solved yet"
    each = f", {about}${sum(dollars) / solved:.4g}" if dollars and len(dollars) == len(rows) else ", price unknown"
    return f"cost per solved task: {about}{tokens / solved:,.0f} tokens{each}{missing} ({solved} of {len(summaries)} solved)"


def _candidate_row(c: CandidateRow) -> list[str]:
    return [
        str(c.number),
        str(c.parent or "-"),
        c.status or "-",
        c.tier or "-",
        interval(c.speedup),
        f"{interval(c.best_baseline_speedup)} ({c.best_baseline})" if c.tier == "full" and c.best_baseline_speedup else "-",
        c.program_class or "-",
        c.changes[:90],
    ]


def _way_row(summary: Summary, way: WayRow) -> list[str]:
    passed = [c for c in map(summary.candidate, way.programs) if c is not None and c.status == "passed" and c.speedup is not None]
    best = max(passed, key=lambda c: c.speedup.low if c.speedup else 0.0, default=None)
    said = f"candidate {best.number}, {interval(best.speedup)} vs eager" if best else "-"
    return [str(way.number), way.stands, str(way.begun), ", ".join(map(str, way.programs)) or "-", said]


USAGE = ["model", "role", "calls", "failed", "tokens in", "tokens out", "dollars", "seconds"]


def _usage_row(u: UsageRow) -> list[str]:
    about = "~" if u.estimated else ""
    counted = [f"{about}{u.input_tokens}", f"{about}{u.output_tokens}"] if u.uncounted < u.exchanges or not u.exchanges else ["?", "?"]
    dollars = f"{u.dollars:.4f}" if u.dollars is not None else "?"
    return [u.profile, u.role, str(u.calls), str(u.failed), *counted, dollars, f"{u.seconds:.1f}"]


def why_paused(summary: Summary) -> str:
    """Explains why a run is paused and what to do about it."""
    reason, hint = (summary.pause.reason, summary.pause.hint) if summary.pause else ("", "")
    said = f"{reason.rstrip('.')}." if reason else ""
    return f"{said} {hint[:1].upper()}{hint[1:].rstrip('.')}." if hint else said


TABLE = ["task", "outcome", "status", "class", "vs eager", "vs best baseline", "programs", "seconds"]


def table_row(name: str, summary: Summary) -> list[str]:
    best = summary.best_candidate()
    confirmed = best is not None and best.tier == "full" and best.best_baseline_speedup is not None
    baseline = f"{interval(best.best_baseline_speedup)} {best.best_baseline}" if best is not None and confirmed else "-"
    return [
        name,
        summary.outcome.replace("_", " ") or summary.state,
        best.status if best else (summary.candidates[-1].status if summary.candidates else "-") or "-",
        (best.program_class if best else None) or "-",
        interval(best.speedup) if best else "-",
        baseline,
        str(len(summary.candidates)),
        f"{summary.spent.get('seconds', 0):.0f}",
    ]


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a plain-text table with aligned columns."""
    widths = [max(len(head[i]), *(len(row[i]) for row in rows)) if rows else len(head[i]) for i in range(len(head))]
    ruled = ["-" * width for width in widths]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, ruled, *rows])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows])
