"""Solves named KernelBench level 1 tasks in Triton with the built-in compiler, without a language model, and verifies them in the full tier.

    python -m bench.in_triton run CHECKOUT --device cuda:0 --shard 0/1 --keep KEPT [--limit-seconds 520] [--only NAME]
    python -m bench.in_triton report KEPT        (also writes bench/results/triton-<device>.json, .md)

`run` is a session of bench.sweep over the tasks of bench/triton_tasks.txt with `--language triton`: it continues from the results in KEPT, and
nothing is lost if a limit is reached. A shard stores its rows in a separate folder under KEPT; `report` reads all of them. Further options are passed
to `python -m agents solve`.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.sweep.rows import dumped
from bench.sweep.store import ROWS, merged
from bench.sweep.tasks import ROOT

TASKS = ROOT / "bench" / "triton_tasks.txt"


def names(tasks: Path = TASKS) -> list[str]:
    return [line for line in tasks.read_text().split("\n") if line and not line.startswith("#")]


def share(tasks: list[str], shard: str) -> list[str]:
    """Returns every n-th task, starting from the i-th, where `shard` is "i/n"."""
    at, _, of = shard.partition("/")
    if not (at.isdigit() and of.isdigit() and int(at) < int(of)):
        raise ValueError(f"--shard is I/N with I from 0 to N - 1, not {shard!r}")
    return tasks[int(at) :: int(of)]


def command(arguments: argparse.Namespace, given: list[str]) -> list[str]:
    """Returns the command line of the bench.sweep session."""
    wanted = [name for name in share(names(), arguments.shard) if arguments.only in name]
    if not wanted:
        raise ValueError("no task is left to run")
    kept = arguments.keep / f"shard-{arguments.shard.replace('/', '-of-')}"
    made = [
        sys.executable,
        "-m",
        "bench.sweep",
        "run",
        str(arguments.checkout),
        "--sets",
        "level1",
        "--devices",
        arguments.device,
        "--keep",
        str(kept),
    ]
    made += [part for name in wanted for part in ("--only", f"level1/{name} ")]
    made += ["--data-dir", str(arguments.data_dir), "--budget-candidates", arguments.budget_candidates, "--task-seconds", str(arguments.task_seconds)]
    made += ["--limit-seconds", str(arguments.limit_seconds)] if arguments.limit_seconds else []
    made += ["--again", arguments.again] if arguments.again else []
    return [*made, "--language=triton", *given]


def run(arguments: argparse.Namespace, given: list[str]) -> int:
    arguments.keep.mkdir(parents=True, exist_ok=True)
    return subprocess.run(command(arguments, given), cwd=ROOT).returncode


def report(arguments: argparse.Namespace, given: list[str]) -> int:
    parts = sorted(arguments.keep.rglob(ROWS))
    if not parts:
        raise ValueError(f"{arguments.keep} holds no {ROWS}: `run` writes one for each shard")
    content = merged(json.loads(path.read_text()) for path in parts)
    content["rows"] = {key: row for key, row in content["rows"].items() if key.split("/")[1].split(" ")[0] in names()}
    device = (content.get("device") or {}).get("device_model") or "unknown"
    arguments.results.mkdir(parents=True, exist_ok=True)
    target = arguments.results / f"triton-{device}.json"
    target.write_text(dumped(content))
    target.with_suffix(".md").write_text(table(content["rows"], device))
    print(table(content["rows"], device))
    return 0


def table(rows: dict[str, dict[str, Any]], device: str) -> str:
    """Formats Markdown: the counts and means, then one line per task; an unsolved task counts as 1.0."""
    solved = [row for row in rows.values() if row["solved"]]
    lines = [f"# Level 1 in Triton, {device}", "", "Made by `python -m bench.in_triton`; tier full, fp32-strict; over 1: the program is faster.", ""]
    lines += [
        f"{len(solved)} of {len(names())} tasks passed as own kernels ({len(rows)} were run); geometric mean against eager "
        f"{mean(rows, 'vs_eager'):.2f}, against the best baseline {mean(rows, 'best'):.2f}; faster than the best baseline: "
        f"{sum(row['best']['ratio'] > 1 for row in solved)}.",
        "",
        "| task | result | class | ms | against eager | against the best | programs | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in names():
        row = rows.get(f"level1/{name} fp32-strict")
        if row is None:
            lines.append(f"| {name} | not run | | | | | | |")
        elif row["solved"]:
            lines.append(
                f"| {name} | passed | {row['class']} | {row['program_ms']:.4g} | {row['vs_eager']['ratio']:.2f} | "
                f"{row['best']['ratio']:.2f} ({row['best']['baseline']}) | {row['candidates']} | {row['seconds']:.0f} |"
            )
        else:
            lines.append(f"| {name} | {row['status']}: {str(row.get('why', ''))[:120]} | {row['class'] or ''} | | | | | {row['seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def mean(rows: dict[str, dict[str, Any]], of: str) -> float:
    ratios = [row[of]["ratio"] if row["solved"] else 1.0 for row in rows.values()]
    return math.exp(sum(math.log(max(ratio, 1e-9)) for ratio in ratios) / len(ratios)) if ratios else float("nan")


def main(given: list[str] | None = None) -> int:
    top = argparse.ArgumentParser(prog="python -m bench.in_triton", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True)
    sitting = commands.add_parser("run", help="a sitting on one device")
    sitting.add_argument("checkout", type=Path, metavar="CHECKOUT", help="of KernelBench")
    sitting.add_argument("--device", default="cuda:0")
    sitting.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th task from the I-th (default: all)")
    sitting.add_argument("--only", default="", metavar="NAME")
    sitting.add_argument("--keep", type=Path, required=True, metavar="KEPT")
    sitting.add_argument("--limit-seconds", type=float)
    sitting.add_argument("--task-seconds", type=float, default=300)
    sitting.add_argument("--budget-candidates", default="6", metavar="N")
    sitting.add_argument("--again", default="", help="rows to make anew, as of bench.sweep")
    sitting.add_argument("--data-dir", type=Path, default=ROOT / ".data" / "sweep-triton")
    sitting.set_defaults(act=run)
    reported = commands.add_parser("report", help="results of all shards")
    reported.add_argument("keep", type=Path, metavar="KEPT")
    reported.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    reported.set_defaults(act=report)
    arguments, rest = top.parse_known_args(given)
    if rest and arguments.act is report:
        top.error(f"unknown: {' '.join(rest)}")
    try:
        return arguments.act(arguments, rest)
    except ValueError as error:
        top.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
