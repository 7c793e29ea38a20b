"""Describes the effect of a measured hunk in words, for the chip in the hunk header and in the list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from webapp.diffs.models import MeasuredDiff, MeasuredHunk
from webapp.runs.models import Run

NOT_ALONE = {
    "syntax": "does not parse",
    "names": "uses what only this hunk defines",
    "build_failed": "does not build",
    "wrong_result": "wrong result",
    "crashed": "crashes",
    "timed_out": "does not finish",
    "rejected": "is rejected",
}
NOT_MEASURED = {"inconclusive": "not conclusive", "infrastructure_error": "the host failed"}


@dataclass(frozen=True)
class Effect:
    """`tone` is the tone of the chip: ok (the hunk saves time), bad (it costs time), idle, warn, live."""

    tone: str
    sign: str
    text: str
    detail: str = ""  # a sentence for the list and the tooltip


def effect_of(row: MeasuredHunk) -> Effect:
    if row.state == "queued":
        return Effect("idle", "…", "waits")
    if row.state == "running":
        return Effect("live", "●", f"is measured: {row.stage}" if row.stage else "is measured")
    if row.state == "cancelled":
        return Effect("idle", "–", "cancelled", "This hunk was not measured.")
    if row.ratio is not None:
        return _timed(row)
    if row.status == "same":
        return Effect("idle", "=", "no effect", row.message)
    if row.status in NOT_ALONE:
        return Effect("warn", "⊘", f"cannot be reverted alone: {NOT_ALONE[row.status]}", row.message)
    return Effect("warn", "!", f"not measured: {NOT_MEASURED.get(row.status, row.status)}", row.message)


def _timed(row: MeasuredHunk) -> Effect:
    assert row.ratio is not None and row.low is not None and row.high is not None
    change, interval = percent(row.ratio), f"[{percent(row.low)}, {percent(row.high)}]"
    what = "in the older program" if row.number == 0 else "without this hunk"
    detail = f"{what[0].upper()}{what[1:]} a call takes {row.ratio:.3g} times as long; 95 % interval {row.low:.3g} to {row.high:.3g}."
    if row.low > 1:
        return Effect("ok", "▲", f"{change} % {interval} {what}", detail)
    if row.high < 1:
        return Effect("bad", "▼", f"{change} % {interval} {what}", detail)
    return Effect("idle", "=", f"no effect: {change} % {interval} {what}", f"{detail} It holds 1.")


def percent(ratio: float) -> str:
    """Formats a ratio of times as a percentage change: "+12", "−3.5"."""
    change = (ratio - 1) * 100
    text = f"{abs(change):.0f}" if abs(change) >= 10 else f"{abs(change):.1f}"
    return f"{'−' if change < 0 else '+'}{text}"


def heads_of(measured: MeasuredDiff) -> dict[int, str]:
    """Returns the HTML for each hunk's header, keyed by hunk number. Hunks that are reverted together are labelled as such."""
    heads: dict[int, str] = {}
    for row in measured.hunks.all():
        for number in row.members if row.number else []:
            others = [member for member in row.members if member != number]
            heads[number] = _head(number, effect_of(row), others)
    return heads


def measured_context(run: Run, found: MeasuredDiff) -> dict[str, Any]:
    """Returns the context of `diffs/_measured.html`."""
    rows = list(found.hunks.select_related("result"))
    effects: list[tuple[MeasuredHunk, Effect]] = [(row, effect_of(row)) for row in rows]
    done = sum(row.state in ("finished", "cancelled") for row in rows)
    alone = [row.ratio for row in rows if row.number and row.ratio is not None]
    product = 1.0
    for ratio in alone:
        product *= ratio
    return {
        "run": run,
        "measured": found,
        "whole": next(((row, effect) for row, effect in effects if row.number == 0), None),
        "effects": [(row, effect) for row, effect in effects if row.number],
        "done": done,
        "total": len(rows),
        "live": done < len(rows),
        "product": product if len(alone) > 1 and done == len(rows) else None,
        "retry": any(row.state == "cancelled" or row.status in ("inconclusive", "infrastructure_error") for row in rows),
    }


def _head(number: int, effect: Effect, others: list[int]) -> SafeString:
    together = format_html(' <span class="faint">with hunk {}</span>', ", ".join(map(str, others))) if others else ""
    return format_html('<span class="hunk-name">Hunk {}</span>{} {}', number, together, chip(effect, number))


def chip(effect: Effect, number: int) -> SafeString:
    return format_html(
        '<span class="chip {}" data-effect="{}" title="{}"><span class="sign" aria-hidden="true">{}</span>{}</span>',
        effect.tone, number, effect.detail, effect.sign, effect.text,
    )  # fmt: skip
