"""Rows and tables of runs with a strong model: its programs compared with eager, the best baseline and the compiler's own program."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from agents.events import Event
from agents.journal import TRACE, read_trace
from agents.payloads import CandidateProposed, EffectCompleted, VerificationFinished, artefact
from agents.projection import project
from bench.sweep.tables import table
from bench.sweep.tasks import ROOT

RESULTS = ROOT / "bench" / "results"
PACKED = ("requests", "best.py")
ENDED = ("improved", "matched", "failed", "out_of_budget", "cancelled", "inconclusive")
HEAD = [
    *("task", "outcome", "right", "compiler vs eager", "best model's program vs eager", "vs the compiler's, in turn"),
    *("winner", "vs best baseline", "calls", "tokens"),
]
Row = dict[str, Any]


def published(keep: Path) -> int:
    """Writes the rows of all runs in `keep`, and their table."""
    rows = {out.name: row_of(out) for out in sorted(keep.iterdir()) if (out / TRACE).exists()}
    devices = sorted({row["device"] for row in rows.values() if row["device"]})
    content = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python -m bench.strong tables",
        "devices": devices,
        "what": "stitch, fp32-strict, the compiler's program first; a strong model that saw only the requests answered for coder and judge",
        "rows": rows,
    }
    (RESULTS / "agents-strong.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "agents-strong.md").write_text(page(content))
    pack(keep, list(rows))
    print(page(content))
    return 0


def pack(keep: Path, names: Sequence[str]) -> None:
    """Stores requests, replies, reports with raw samples, and programs next to the rows. Timelines are excluded, and so are requests that quote
    KernelBench's sources."""
    with tarfile.open(RESULTS / "agents-strong.tar.gz", "w:gz") as packed:
        for name in names:
            for part in PACKED if name.startswith("everyday-") else ():
                if (keep / name / part).exists():
                    packed.add(keep / name / part, f"{name}/{part}")
            for file, content in programs_of(keep / name).items():
                info = tarfile.TarInfo(f"{name}/programs/{file}")
                info.size = len(content)
                packed.addfile(info, io.BytesIO(content))


def programs_of(out: Path) -> dict[str, bytes]:
    """Returns sources and verdicts by the names of the files in which they are stored."""
    events, artefacts = read_trace(out)
    kept = dict(artefacts)
    found = {}
    for event in events:
        if (said := event.of(CandidateProposed)) is not None and said.program is not None:
            found[f"candidate-{said.candidate}.py"] = kept[said.program.sha]
        if (done := event.of(VerificationFinished)) is not None and done.candidate is not None and done.result is not None:
            found[f"candidate-{done.candidate}-{done.tier}-{done.job}.json"] = kept[artefact(done.result)]
    return found


def row_of(out: Path) -> Row:
    """Returns a run's result so far, including the verdicts of every program."""
    events = read_trace(out)[0]
    summary = project(events)
    proposed = [said for event in events if (said := event.of(CandidateProposed)) is not None]
    verdicts: dict[int, dict[str, VerificationFinished]] = {}
    for event in events:
        if (done := event.of(VerificationFinished)) is not None and done.candidate is not None and done.tier:
            verdicts.setdefault(done.candidate, {})[done.tier] = done
    usage = summary.usage
    return {
        "task": summary.task.name,
        "outcome": summary.outcome or "not ended",
        "reason": summary.reason,
        "device": device_of(events),
        "programs": [program(said, verdicts.get(said.candidate, {})) for said in proposed],
        "best": summary.best,
        "calls": sum(row.exchanges for row in usage),
        "tokens": sum(row.input_tokens + row.output_tokens for row in usage),
        "tokens_estimated": any(row.estimated for row in usage),
    }


def device_of(events: Sequence[Event]) -> str:
    found = (done.value for event in events if (done := event.of(EffectCompleted)) is not None and done.name == "device")
    return str(next(found, {}).get("device_name", ""))


def program(said: CandidateProposed, verdicts: dict[str, VerificationFinished]) -> Row:
    """Returns a program's row. `vs_parent` comes from the quick tier, where both programs are timed alternately; the rest comes from the last
    tier."""
    quick, last = verdicts.get("quick"), verdicts.get("full") or verdicts.get("quick")
    compiled = "a baseline of PyTorch" if said.strategy == "yield-to-baseline" else "compiler"
    return {
        "number": said.candidate,
        "parent": said.parent,
        "author": said.author or compiled,
        "title": said.title,
        "strategy": said.strategy,
        "status": last.status if last is not None else "not verified",
        "message": last.message if last is not None else "",
        "class": last.program_class if last is not None else None,
        "vs_eager": interval(last.speedup) if last is not None else None,
        "tier": last.tier if last is not None else None,
        "quick": quick.status if quick is not None else None,
        "vs_parent": interval(quick.gain) if quick is not None else None,
        "best_baseline": last.best_baseline if last is not None and last.tier == "full" else None,
        "vs_best": interval(last.best_baseline_speedup) if last is not None and last.tier == "full" else None,
    }


def interval(found: Any) -> dict[str, float] | None:
    return {"ratio": found.ratio, "low": found.low, "high": found.high} if found is not None else None


def page(content: Row) -> str:
    rows: dict[str, Row] = content["rows"]
    lines = [line(name, row) for name, row in rows.items()]
    said = ["# The agents with a strong model", "", f"{content['what']}. {', '.join(content['devices'])}. {content['made'][:10]}.", ""]
    return "\n".join([*said, *figures(rows), "", table(HEAD, lines), ""])


def figures(rows: dict[str, Row]) -> list[str]:
    asked = {name: row for name, row in rows.items() if models(row)}
    right = sum(any(one["status"] == "passed" for one in models(row)) for row in asked.values())
    gains = {name: over_compiler(row) for name, row in asked.items()}
    everyday = [name for name in asked if name.startswith("everyday-")]
    eight = [gain for name, gain in gains.items() if name.startswith("everyday-") and gain is not None]
    known = [gain for gain in gains.values() if gain is not None]
    tokens = [row["tokens"] for row in asked.values()]
    return [
        f"- A program of the model passed on {right} of the {len(asked)} tasks with a verified one.",
        f"- Everyday tasks on which its best right program is 1.2x the compiler's or more: {sum(gain >= 1.2 for gain in eight)} of {len(everyday)}.",
        f"- Over the compiler's program, geometric mean: {geometric_mean(known):.2f}x over {len(known)} tasks." if known else "",
        f"- Tokens a task, estimated: {median(tokens):,.0f} in the median, {max(tokens):,} at most." if tokens else "",
    ]


def models(row: Row) -> list[Row]:
    return [one for one in row["programs"] if one["author"].startswith("strong") and one["status"] != "not verified"]


def over_compiler(row: Row) -> float | None:
    """Returns the speedup of the model's best correct program over the compiler's program. Each step was timed alternately with its parent
    program."""
    by_number = {one["number"]: one for one in row["programs"]}
    found = []
    for one in models(row):
        if one["status"] != "passed":
            continue
        gain, at = 1.0, one
        while at["author"].startswith("strong") and at["vs_parent"] is not None and at["parent"] in by_number:
            gain, at = gain * at["vs_parent"]["ratio"], by_number[at["parent"]]
        if at["author"] == "compiler":
            found.append(gain)
    return max(found, default=None)


def line(name: str, row: Row) -> Sequence[str]:
    programs = {one["number"]: one for one in row["programs"]}
    compiled = next((one for one in row["programs"] if one["author"] == "compiler"), None)
    best = max((one for one in models(row) if one["vs_eager"]), key=lambda one: one["vs_eager"]["ratio"], default=None)
    winner, gain = programs.get(row["best"]), over_compiler(row)
    passed = sum(one["status"] == "passed" for one in models(row))
    return [
        name.partition("-")[2] if name.startswith("everyday-") else name,
        row["outcome"],
        f"{passed} of {len(models(row))}",
        ratio(compiled["vs_eager"]) if compiled else "-",
        ratio(best["vs_eager"]) if best else "-",
        f"{gain:.2f}" if gain is not None else "-",
        winner["author"].partition(" ")[0] if winner else "-",
        f"{ratio(winner['vs_best'])} {winner['best_baseline']}" if winner and winner["vs_best"] else "-",
        str(row["calls"]),
        f"{row['tokens']:,}",
    ]


def ratio(interval: dict[str, float] | None) -> str:
    return f"{interval['ratio']:.2f} [{interval['low']:.2f}, {interval['high']:.2f}]" if interval else "-"
