"""Measures how many rollouts per second the verifiers behind the reward server judge, by kind of program.

    python -m bench.rl_arms.rollouts --data DATA --out FILE --device cuda:0 --verifiers 12 --seconds 60

The programs are those of `bench.rl_arms.corpus`, in groups of eight for one task, as GRPO sends them: half of them are tuned, and the others are
wrong, slow or cheats, in the order in which they occur. Each has a comment that makes it a different program. Every program gets fresh processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.given import open_verifier
from agents.rl.data.making import Lines
from agents.rl.pool import Pool
from verifier.jobs import VerifyJob

GROUP = 8


def groups(data: Path) -> list[list[dict[str, Any]]]:
    """Returns groups of programs for one task each, using only tasks with a wrong program or a cheat."""
    tasks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in Lines(data / "pairs.jsonl"):
        if "program" in row:
            tasks[row["number"]].append(row)
    found = []
    for rows in tasks.values():
        by = {row["quality"]: row for row in rows}
        others = [by[quality] for quality in ("wrong", "cheat", "slow") if quality in by]
        if "tuned" in by and ("wrong" in by or "cheat" in by):
            found.append([by["tuned"] if at % 2 == 0 else others[at // 2 % len(others)] for at in range(GROUP)])
    return found


async def measure(args: argparse.Namespace, keep: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Returns what was measured. `keep` receives the results so far after every program, because a host may end before the last one."""
    clients = [open_verifier(args.device, args.data_dir, args.timing_seconds) for _ in range(args.verifiers)]
    pool = Pool(clients, most_waiting=1 << 20)
    try:
        environment = (await clients[0].ready()).model_dump(mode="json")
        due = iter([(row, number) for number, rows in enumerate(groups(args.data)) for row in rows])
        lines: list[dict[str, Any]] = []
        begun = time.monotonic()

        async def work() -> None:
            for row, number in due:
                if time.monotonic() - begun > args.seconds:
                    return
                source = f"{row['program']}\n# {number} {len(lines)} {time.monotonic_ns()}\n"
                started = time.monotonic()
                result = await pool.run(VerifyJob(task_source=row["task"], program_source=source))
                report = result.report
                lines.append(
                    {
                        "quality": row["quality"],
                        "begun": round(started - begun, 2),
                        "seconds": round(time.monotonic() - started, 2),
                        "status": report.status if report else result.error[:100],
                        "message": report.message[:200] if report else "",
                        "class": report.program_class if report else None,
                        "stages": {one.name: round(one.seconds, 3) for one in report.stages} if report else {},
                        "measuring": report.timing.measuring if report and report.timing else 0.0,
                        "waiting": report.timing.waiting if report and report.timing else 0.0,
                    }
                )
                keep({"environment": environment, "wall": round(time.monotonic() - begun, 2), "rollouts": lines})

        async with asyncio.TaskGroup() as several:
            for _ in range(2 * args.verifiers):
                several.create_task(work())
        return {"environment": environment, "wall": round(time.monotonic() - begun, 2), "rollouts": lines}
    finally:
        for client in clients:
            await client.close()


def summary(found: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    lines = [line for line in found["rollouts"] if line["begun"] + line["seconds"] > args.skip]
    if not lines:
        return {"rollouts_per_second": None, "skipped_seconds": args.skip}
    span = max(line["begun"] + line["seconds"] for line in lines) - args.skip
    kinds = {}
    for quality in sorted({line["quality"] for line in lines}):
        mine = [line for line in lines if line["quality"] == quality]
        stages = {name for line in mine for name in line["stages"]}
        kinds[quality] = {
            "rollouts": len(mine),
            "seconds": statistics.median(line["seconds"] for line in mine),
            "stages": {name: round(statistics.median(line["stages"].get(name, 0.0) for line in mine), 3) for name in sorted(stages)},
            "device_alone": round(statistics.mean(line["measuring"] for line in mine), 3),
            "verdicts": dict(Counter(line["status"] for line in mine)),
        }
    passed = sum(line["status"] == "passed" for line in lines)
    return {
        "rollouts_per_second": round(len(lines) / span, 3),
        "passed_share": round(passed / len(lines), 3),
        "device_alone_share": round(sum(line["measuring"] for line in lines) / span, 3),
        "verifiers": args.verifiers,
        "timing_seconds": args.timing_seconds,
        "cpus": os.cpu_count(),
        "skipped_seconds": args.skip,
        "kinds": kinds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--verifiers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=60.0, help="no program begins after this time")
    parser.add_argument("--skip", type=float, default=15.0, help="seconds at the beginning that do not count: verifiers start")
    parser.add_argument("--timing-seconds", type=float, default=0.2, help="how long a program is timed")
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR", help="the verifiers' build cache")
    args = parser.parse_args()

    def keep(found: dict[str, Any]) -> dict[str, Any]:
        said = summary(found, args)
        args.out.write_text(json.dumps({**said, **found}, indent=1) + "\n", encoding="utf-8")
        return said

    print(json.dumps(keep(asyncio.run(measure(args, keep))), indent=1), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
