"""Summarises runs and reports in a few words, for a model with a short context."""

from __future__ import annotations

from typing import Any

from stitchwork.figures import interval, milliseconds
from stitchwork.terminal import clean

Json = dict[str, Any]

MOST_ROWS = 12
MOST_KERNELS = 8


def run_text(run: Json, candidates: list[Json]) -> str:
    lines = [
        f"run {run['id']}: {clean(run['title'])}, {run['workflow']} on {run['device']}, {run['precision']}",
        f"state: {run['state']}{', outcome: ' + run['outcome'] if run['outcome'] else ''}, {run['last_seq']} events, {run['candidates']} candidates",
    ]
    if run["reason"]:
        lines.append(f"reason: {clean(run['reason'])[:600]}")
    if run["speedup"]:
        lines.append(f"best: candidate {run['best_candidate']}, {interval(run['speedup'])} vs eager")
    if candidates:
        lines.append("candidates (latest last):")
        hidden = len(candidates) - MOST_ROWS
        lines += [f"  … {hidden} earlier ones"] if hidden > 0 else []
        lines += [f"  {_candidate(c)}" for c in candidates[-MOST_ROWS:]]
    lines.append(f"next: {_next(run)}")
    lines.append(f"page: {run['page']}")
    return "\n".join(lines)


def _candidate(c: Json) -> str:
    v = c["verification"] or {}
    told = (v.get("status") or v.get("state") or "not verified").replace("_", " ")
    if v.get("speedup"):
        middle = {"ratio": v["speedup"], "low": v["speedup_low"], "high": v["speedup_high"]}
        told += f" {interval(middle)} vs eager on {v['device_name']} ({v['tier']}), {milliseconds(v['program_ms'])}"
    return f"{c['number']}{' (best)' if c['best'] else ''}: {told}. {clean(c['changes'])[:160]}"


def _next(run: Json) -> str:
    if run["state"] == "finished":
        return "best_program returns the source, explain_report the evidence." if run["best_candidate"] else "no program passed: read the reason."
    if run["state"] == "paused":
        return "it is paused and waits for a person, who can resume it on its page."
    return "it continues by itself: ask again in a minute."


def report_text(report: Json) -> str:
    """Returns a report's findings on correctness, speed and honesty, and where the time goes."""
    env = report["environment"]
    lines = [
        f"{report['status'].replace('_', ' ')} ({report['tier']}, {report['precision']}, {report['mode']})",
        f"on {clean(env['device_name'])}, torch {env['torch']}, {env['compiler']}",
        clean(report["message"])[:800],
    ]
    lines += _timing(report)
    lines += _stages(report)
    lines += _kernels(report)
    lines += _resources(report)
    trials = report["trials"]
    if trials:
        wrong = [trial for trial in trials if not trial["ok"]]
        lines.append(f"correctness: {len(trials) - len(wrong)} of {len(trials)} checked calls correct")
        lines += [
            f"  {clean(t['name'])} {clean(t['output'])}: error {t['error']} against {t['bound']}. {clean(t['detail'])[:200]}" for t in wrong[:5]
        ]
    for name, rows in (("problems", report["problems"]), ("findings", report["findings"])):
        if rows:
            lines.append(f"{name}:")
            lines += [f"  {_line(row)}{clean(row['message'])[:300]}" for row in rows[:MOST_ROWS]]
    reasons = [f"{name}: {clean(text)[:160]}" for name, text in report["reasons"].items()]
    if reasons:
        lines += ["not measured:", *(f"  {reason}" for reason in reasons[:MOST_ROWS])]
    return "\n".join(line for line in lines if line)


def _line(row: Json) -> str:
    return f"line {row['line']}: " if row.get("line") else ""


def _timing(report: Json) -> list[str]:
    timing = report["timing"]
    if not timing:
        return []
    lines = [
        f"  vs {c['baseline']}: {interval(c['speedup'])}, program {milliseconds(c['program_ms'])}, baseline {milliseconds(c['baseline_ms'])}"
        for c in timing["comparisons"]
    ]
    if report["floor_ms"] is not None and report["floor_fraction"] is not None:
        lines.append(f"  roofline floor {milliseconds(report['floor_ms'])}: {100 * report['floor_fraction']:.0f} % reached")
    if report["program_class"]:
        share = f", {100 * report['own_share']:.0f} % of the time in own kernels" if report["own_share"] is not None else ""
        lines.append(f"  class {report['program_class']}{share}")
    if timing["bounded"]:
        lines.append("  a call takes less than 1 ms: its time includes the host's cost of starting it")
    return ["time of a call:", *lines]


def _stages(report: Json) -> list[str]:
    told = ", ".join(f"{s['name']} {s['status']} {s['seconds']:.1f} s" for s in report["stages"])
    return [f"stages: {told}"] if told else []


def _kernels(report: Json) -> list[str]:
    kernels = sorted(report["kernels"], key=lambda k: -k["ms"])[:MOST_KERNELS]
    rows = [
        f"  {100 * k['share']:.0f} % {milliseconds(k['ms'])} x{k['calls']:g} {clean(k['name'])[:90]}{' (own)' if k['own'] else ''}{_via(k)}"
        for k in kernels
    ]
    return ["kernels of a call, by time:", *rows] if rows else []


def _via(kernel: Json) -> str:
    return f" via {clean(kernel['via'])}" if kernel["via"] else ""


def _resources(report: Json) -> list[str]:
    rows = (report["build"] or {}).get("resources") or []
    told = [", ".join(f"{name} {value}" for name, value in row.items()) for row in rows[:MOST_KERNELS]]
    return ["compiled kernels:", *(f"  {clean(row)[:200]}" for row in told)] if told else []
