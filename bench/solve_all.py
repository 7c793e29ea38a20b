"""Solves every example on one device and writes the table: `python bench/solve_all.py [--device cpu|cuda:0] [--keep DIR] [TASK ...]`.

Writes `bench/results/solve-<device>.json` (raw intervals, environment, machine) and a Markdown table next to it, including the examples that are not
faster. Run it on a quiet machine; the result records the load before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agents import show  # noqa: E402
from agents.journal import TRACE, read_trace  # noqa: E402
from agents.projection import Summary, project  # noqa: E402
from verifier.jobs import JobResult  # noqa: E402

HEAD = ["task", "status", "class", "own share", "vs eager", "vs best baseline", "program ms", "faster", "programs", "seconds"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", type=Path, default=sorted((ROOT / "examples").glob("*.py")))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32-strict")
    parser.add_argument("--budget-candidates", default="8")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs there (an interrupted series continues)")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="solve-all-") as scratch:
        runs = args.keep or Path(scratch)
        load = os.getloadavg()[0]
        command = [sys.executable, "-m", "agents", "solve", *map(str, args.tasks), "--out", str(runs), "--device", args.device, "--resume"]
        command += ["--precision", args.precision, "--budget-candidates", args.budget_candidates]
        done = subprocess.run(command, cwd=ROOT)
        if done.returncode in (2, 130):
            return done.returncode
        results = [result(folder) for folder in run_folders(runs)]
    kind = args.device.split(":")[0]
    machine = {**machine_facts(), "load_before": round(load, 2), "load_after": round(os.getloadavg()[0], 2)}
    content = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python bench/solve_all.py" + (f" --device {args.device}" if args.device != "cpu" else ""),
        "machine": machine,
        "passed": sum(r["status"] == "passed" for r in results),
        "faster_custom_or_mixed": sum(bool(r["faster"]) and r["class"] in ("custom", "mixed") for r in results),
        "results": results,
    }
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / f"solve-{kind}.json").write_text(json.dumps(content, indent=1) + "\n")
    (args.results / f"solve-{kind}.md").write_text(table(content))
    print((args.results / f"solve-{kind}.md").read_text())
    return done.returncode


def run_folders(runs: Path) -> list[Path]:
    return [runs] if (runs / TRACE).exists() else sorted(path.parent for path in runs.glob(f"*/{TRACE}"))


def result(folder: Path) -> dict:
    """Returns one row: the confirmed verdict of the best program, complete intervals, and the steps that led to it."""
    events, artefacts = read_trace(folder)
    summary = project(events)
    best = summary.best_candidate() or (summary.candidates[-1] if summary.candidates else None)
    row = {"task": summary.task.name, "outcome": summary.outcome, "reason": summary.reason, "flags": summary.flags, **verdict(summary, best)}
    if best is not None and best.report is not None:
        report = JobResult.model_validate_json(dict(artefacts)[best.report.sha]).report
        if report is not None:
            row["environment"] = report.environment.model_dump()
            row["protection"] = report.protection.sandbox
            row["comparisons"] = [
                {"baseline": c.baseline, "speedup": c.speedup.model_dump(), "program_ms": c.program_ms, "baseline_ms": c.baseline_ms}
                for c in (report.timing.comparisons if report.timing else [])
            ]
            row["own_share"], row["floor_fraction"] = report.own_share, report.floor_fraction
    return row


def verdict(summary: Summary, best) -> dict:
    return {
        "status": best.status if best else None,
        "tier": best.tier if best else None,
        "class": best.program_class if best else None,
        "speedup": best.speedup.model_dump() if best and best.speedup else None,
        "best_baseline": best.best_baseline if best else None,
        "best_baseline_speedup": best.best_baseline_speedup.model_dump() if best and best.best_baseline_speedup else None,
        "program_ms": best.program_ms if best else None,
        "faster": bool(best and best.faster),
        "changes": best.changes if best else "",
        "candidates": len(summary.candidates),
        "spent": summary.spent,
    }


def table(content: dict) -> str:
    machine, rows = content["machine"], []
    for r in sorted(content["results"], key=lambda r: -(r["speedup"] or {"low": 0})["low"]):
        against = f"{interval(r['best_baseline_speedup'])} {r['best_baseline']}" if r["best_baseline_speedup"] else "-"
        share = f"{100 * r['own_share']:.0f} %" if r.get("own_share") is not None else "-"
        program = f"{r['program_ms']:.3f}" if r["program_ms"] else "-"
        rows.append(
            [r["task"], r["status"] or r["outcome"], r["class"] or "-", share, interval(r["speedup"]), against, program,
             "yes" if r["faster"] else "no", str(r["candidates"]), f"{r['spent'].get('seconds', 0):.0f}"]
        )  # fmt: skip
    head = (
        f"`{content['command']}`, {content['made']}\n\n{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['system']}, Python {machine['python']}; load {machine['load_before']} before, {machine['load_after']} after.\n\n"
        f"{content['passed']} of {len(content['results'])} passed; {content['faster_custom_or_mixed']} are `custom` or `mixed` with the lower bound "
        "of their 95 % interval over 1.0 against eager. Intervals are of the ratio of times (over 1: the program is faster), tier full.\n\n"
    )
    return head + show.markdown(HEAD, rows) + "\n"


def interval(value: dict | None) -> str:
    return f"{value['ratio']:.2f} [{value['low']:.2f}, {value['high']:.2f}]" if value else "-"


def machine_facts() -> dict:
    """Returns the machine facts that a reader needs for comparison, but never a host name or a path."""
    processor = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), processor)
        memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    except (OSError, ValueError, IndexError):
        memory = 0.0
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
