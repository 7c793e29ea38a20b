"""Describes a verification's result for a terminal and for a model with a short context."""

from __future__ import annotations

from typing import Any

from stitchwork.figures import interval, milliseconds
from stitchwork.terminal import clean

Result = dict[str, Any]

MOST_LINES = 12  # maximum number of problems that are listed, and likewise of findings and of trials
LONGEST_MESSAGE = 600
LONGEST_OUTPUT = 2000


def headline(result: Result) -> str:
    """Returns, for example, `passed: 2.41x [2.36, 2.47] vs eager on NVIDIA H200 (full, fp32-strict)`."""
    if not result["done"]:
        ahead = f", {result['ahead']} before it in the queue" if result.get("ahead") else ""
        return f"{result['state']}{ahead}"
    where = f" on {clean(result['device_name'])}" if result.get("device_name") else ""
    told = f"{result['verdict'].replace('_', ' ')}"
    if result.get("speedup"):
        told += f": {interval(result['speedup'])} vs eager"
    return f"{told}{where} ({result['tier']}, {result['precision']})"


def verdict_text(result: Result) -> str:
    """Returns everything needed for the next step, in at most about 4,000 characters."""
    lines = [headline(result)]
    if result["message"] and (not result["passed"] or not result.get("speedup")):
        lines.append(clean(result["message"])[:LONGEST_MESSAGE])
    lines += _timings(result)
    lines += _listed("problems", [_at(p, p["message"], p.get("hint")) for p in result["problems"]])
    lines += _listed("findings", [_at(f, f"{f['severity']}: {f['message']} ({f['rule']})") for f in result["findings"]])
    lines += _listed("failed trials", [_trial(t) for t in result["failed_trials"]])
    if result["flags"]:
        lines.append(f"the task is flagged {' and '.join(result['flags'])}: its result proves little and is not ranked")
    output = clean(result.get("compiler_output") or "").strip()
    if output:
        lines += [
            "compiler:",
            output if len(output) <= LONGEST_OUTPUT else f"{output[:LONGEST_OUTPUT]}\n… ({len(output) - LONGEST_OUTPUT} characters more)",
        ]
    if result["next"]:
        lines.append(f"next: {result['next']}")
    lines.append(f"evidence: {result['page']}")
    return "\n".join(lines)


def fast_enough(result: Result, least: float) -> bool:
    """Returns whether the lower bound of the speedup over eager reaches `least`."""
    return bool(result["passed"] and result.get("speedup") and result["speedup"]["low"] >= least)


def _timings(result: Result) -> list[str]:
    lines = [
        f"  {c['baseline']:<22} {interval(c)}  program {milliseconds(c['program_ms'])}, baseline {milliseconds(c['baseline_ms'])}"
        for c in result["comparisons"]
    ]
    share = f"{100 * result['own_share']:.0f} % of the time in own kernels" if result.get("own_share") is not None else ""
    floor = f"{100 * result['floor_fraction']:.0f} % of the roofline's floor" if result.get("floor_fraction") is not None else ""
    told = ", ".join(filter(None, [result.get("program_class") or "", share, floor]))
    return [*lines, *([f"  {told}"] if told else [])]


def _listed(name: str, rows: list[str]) -> list[str]:
    more = [f"  … {len(rows) - MOST_LINES} more"] if len(rows) > MOST_LINES else []
    return [f"{name}:", *(f"  {row}" for row in rows[:MOST_LINES]), *more] if rows else []


def _at(entry: dict[str, Any], message: str, hint: str | None = None) -> str:
    place = f"line {entry['line']}: " if entry.get("line") else ""
    return f"{place}{clean(message)[:400]}{f' ({clean(hint)[:200]})' if hint else ''}"


def _trial(trial: dict[str, Any]) -> str:
    told = f"{trial['name']}"
    if trial.get("output"):
        told += f", {trial['output']}"
    if trial.get("error") is not None and trial.get("bound") is not None:
        told += f": error {trial['error']:.3g}, bound {trial['bound']:.3g} ({trial['norm']})"
    return f"{clean(told)}{': ' + clean(trial['detail'])[:300] if trial.get('detail') else ''}"
