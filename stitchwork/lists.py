"""Formats the API's lists as tables for a terminal."""

from __future__ import annotations

from typing import Any

from stitchwork.doctor import Check
from stitchwork.figures import ago, interval, milliseconds, seconds
from stitchwork.terminal import Terminal, clean, columns

Json = dict[str, Any]


def runs(rows: list[Json]) -> str:
    if not rows:
        return "no runs; start one: stitchwork submit TASK.py"
    head = ["run", "title", "workflow", "device", "state", "vs eager", "by", "when"]
    return columns(
        head,
        [
            [
                r["id"],
                r["title"][:40],
                r["workflow"],
                r["device"],
                r["outcome"] or r["state"],
                interval(r["speedup"]),
                r["created_by"] or "",
                ago(r["created_at"]),
            ]
            for r in rows
        ],
    )


def run(detail: Json, candidates: list[Json]) -> str:
    """Returns a run with its candidates."""
    lines = [
        f"{clean(detail['title'])} · {detail['workflow']} · {detail['device']} · {detail['precision']} · {detail['mode']}",
        f"{detail['state']}{': ' + detail['outcome'].replace('_', ' ') if detail['outcome'] else ''},"
        f" {detail['last_seq']} events, {ago(detail['created_at'])}",
    ]
    if detail["speedup"]:
        lines.append(f"best: candidate {detail['best_candidate']}, {interval(detail['speedup'])} vs eager")
    if detail["reason"]:
        lines.append(clean(detail["reason"]))
    if candidates:
        lines += [
            "",
            columns(["#", "from", "verdict", "tier", "vs eager", "time", "device", "class", "changes"], [_candidate(c) for c in candidates]),
        ]
    spent = {unit: value for unit, value in detail["spent"].items() if value}
    if spent:
        lines += ["", "spent: " + ", ".join(f"{unit.replace('_', ' ')} {value:g}" for unit, value in spent.items())]
    return "\n".join([*lines, "", detail["page"]])


def _candidate(c: Json) -> list[object]:
    v = c["verification"] or {}
    speedup = {"ratio": v["speedup"], "low": v["speedup_low"], "high": v["speedup_high"]} if v.get("speedup") else None
    mark = "*" if c["best"] else ""
    verdict = (v.get("status") or v.get("state") or "-").replace("_", " ")
    return [
        f"{c['number']}{mark}", c["parent"] or "-", verdict, v.get("tier") or "-", interval(speedup), milliseconds(v.get("program_ms")),
        v.get("device_name") or "-", v.get("program_class") or "-", c["changes"][:70],
    ]  # fmt: skip


def leaderboard(answer: Json) -> str:
    """Returns the ranking, with one line per entry."""
    chosen = answer["selection"]
    if not answer["entries"]:
        return "no confirmed results with these filters"
    where = [chosen["suite"] or f"all {len(chosen['tasks'])} tasks", chosen["device_name"], chosen["precision"], chosen["mode"]]
    told = answer["columns"]  # the server names the columns, so this client can also show new ones
    head = ["#", "entry", *(column["title"] for column in told)]
    rows = [[e["rank"] or "-", e["entry"], *(_figure(e, column["field"], column["kind"]) for column in told)] for e in answer["entries"]]
    return f"{clean(', '.join(where))}; {answer['interval']}\n\n{columns(head, rows)}"


def _figure(entry: Json, field: str, kind: str) -> str:
    value = entry[field]
    written = {
        "solved": lambda: f"{value}/{entry['tasks']}",
        "interval": lambda: interval(value),
        "share": lambda: f"{100 * value:.0f} %",
        "dollars": lambda: f"${value:.3f}",
        "seconds": lambda: seconds(value) or "-",
    }
    return "-" if value is None else written.get(kind, lambda: f"{value:g}")()


def results(answer: Json) -> str:
    """Returns individual results, one per run."""
    if not answer["results"]:
        return "no confirmed results with these filters"
    head = ["task", "vs eager", "vs best baseline", "time", "device", "precision", "entry", "run"]
    rows = [
        [
            r["task"][:36], _interval(r, "speedup_vs_eager"), f"{_interval(r, 'speedup_vs_best')} {r['best_baseline']}",
            milliseconds(r["program_ms"]), r["device_name"], r["precision"], r["entry"], r["run"],
        ]
        for r in answer["results"]
    ]  # fmt: skip
    hidden = answer["total"] - len(rows)
    return columns(head, rows) + (f"\n{hidden} more: -n COUNT shows them" if hidden > 0 else "")


def _interval(row: Json, name: str) -> str:
    return interval({"ratio": row[name], "low": row[f"{name}_low"], "high": row[f"{name}_high"]} if row[name] is not None else None)


def devices(answer: Json) -> str:
    if not answer["devices"]:
        return "no verifier has connected yet; `make run` starts one"
    head = ["device", "name", "status", "waiting", "sandbox"]
    rows = [[d["device"], d["name"], _status(d), d["waiting"], d["sandbox"] or "-"] for d in answer["devices"]]
    models = ", ".join(model["name"] for model in answer["models"]) or "none; the built-in compiler needs none"
    return f"{columns(head, rows)}\nmodels: {clean(models)}"


def _status(device: Json) -> str:
    if not device["usable"]:
        return f"cannot be used: {device['unusable_because'][:60]}"
    return "offline" if not device["online"] else "busy" if device["busy"] else "free"


def checks(found: list[Check], terminal: Terminal) -> str:
    lines = []
    for check in found:
        sign, colour = ("✓", "green") if check.ok else ("✕", "red") if check.needed else ("!", "yellow")
        lines.append(f"{terminal.paint(sign, colour)} {check.name}: {clean(check.found)}")
        if not check.ok and check.fix:
            lines.append(f"    {check.fix}")
    return "\n".join(lines)
