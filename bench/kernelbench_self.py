"""Verifies every KernelBench model of levels 1 to 3 as its own candidate: none may be refused, and each must be classified as library orchestration.

    python bench/kernelbench_self.py CHECKOUT --device cuda:0 --shard 1/4 --workers 3 --limit-seconds 480 --out PART.json [--resume]
    python bench/kernelbench_self.py --merge PART.json ... --out bench/results/verifier-kernelbench-self.json

Several verifiers share the GPU (only one of them measures at a time); `kernelbench-sizes.json` determines which tasks may run concurrently. The
results of interest are verdict, class and flags. The speedup is not meaningful because the timing budget is small. The result is written after every
task.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from verifier.client import Verifier  # noqa: E402
from verifier.jobs import JobResult, VerifyJob  # noqa: E402
from verifier.limits import Limits  # noqa: E402

GIB = 1 << 30
# GPU memory that an evaluation needs per byte of inputs, outputs and state: fp64 copies, the arenas of three parties, and the judge's own memory.
PER_INPUT, PER_OUTPUT, PER_STATE, FIXED = 7.0, 9.0, 8.0, 4 * GIB
LIMITS = {"quick_timing": 0.4, "load": 60, "inputs": 60, "call": 40, "oracle": 120, "correctness": 12, "memory": 64 * GIB, "temporary": 4 * GIB}
TASK_SECONDS = 170  # seconds after which a task is given up
AGAIN = ("infrastructure_error", "inconclusive", "error", "crashed", "timed_out")  # tried once more, with no other task on the GPU


def candidate(source: str) -> str:
    """Returns the task's own model under the class name that a program must have, with everything else unchanged."""
    return re.sub(r"\bclass Model\b", "class ModelNew", re.sub(r"\bsuper\(\s*Model\s*,", "super(ModelNew,", source))


class TaskQueue:
    """Chooses the next task: the largest that fits into the remaining GPU memory."""

    def __init__(self, tasks: list[str], sizes: dict[str, dict[str, int]], capacity: float):
        self.capacity = self.left = capacity
        self.need = {task: self._need(sizes.get(task)) for task in tasks}
        self.waiting = sorted(tasks, key=lambda task: -self.need[task])
        self.changed = asyncio.Condition()

    def _need(self, size: dict[str, int] | None) -> float:
        if size is None:
            return 3 * FIXED
        bytes_needed = FIXED + PER_INPUT * size["inputs"] + PER_OUTPUT * size["outputs"] + PER_STATE * size["state"]
        return min(bytes_needed, self.capacity)

    async def take(self) -> str | None:
        async with self.changed:
            while self.waiting:
                for task in self.waiting:
                    if self.need[task] <= self.left:
                        self.waiting.remove(task)
                        self.left -= self.need[task]
                        return task
                await self.changed.wait()
            return None

    async def give_back(self, task: str) -> None:
        async with self.changed:
            self.left += self.need[task]
            self.changed.notify_all()

    async def alone(self, tasks: list[str]) -> None:
        async with self.changed:
            self.need.update(dict.fromkeys(tasks, self.capacity))
            self.waiting += tasks
            self.changed.notify_all()

    async def stop(self) -> None:
        async with self.changed:
            self.waiting = []
            self.changed.notify_all()


def row(task: str, result: JobResult, seconds: float, attempt: int) -> dict[str, Any]:
    report = result.report
    if report is None:
        return {"task": task, "ok": False, "status": "error", "message": result.error, "seconds": seconds, "attempt": attempt}
    speedup = report.speedup
    return {
        "task": task,
        "ok": report.status == "passed" and report.program_class == "orchestration",
        "status": report.status,
        "class": report.program_class,
        "flags": report.flags,
        "message": report.message,
        "findings": [f"{finding.severity} {finding.rule}: {finding.message}" for finding in report.findings if finding.severity != "note"],
        "weights": report.weights,
        "trials": [f"{trial.name}{'' if trial.ok else ': ' + trial.detail}" for trial in report.trials if not trial.name.startswith("timed call")],
        "worst": max((trial.error / trial.bound for trial in report.trials if trial.error is not None and trial.bound), default=None),
        "own_share": report.own_share,
        "eager_ms": report.timing.comparisons[0].baseline_ms if report.timing else None,
        "speedup": speedup.model_dump() if speedup else None,
        "peak_bytes": report.peak_bytes,
        "stages": {stage.name: stage.seconds for stage in report.stages},
        "reasons": report.reasons,
        "seconds": seconds,
        "attempt": attempt,
    }


class Series:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.rows: dict[str, dict[str, Any]] = {}
        self.begin = time.monotonic()
        self.device_name = ""

    def write(self) -> None:
        out = self.arguments.out
        content = {
            "what": "each KernelBench model as its own candidate",
            "device": self.device_name,
            "workers": self.arguments.workers,
            "seconds": round(time.monotonic() - self.begin, 1),
            "rows": list(self.rows.values()),
        }
        scratch = out.with_suffix(".new")
        scratch.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(scratch, out)

    async def one(self, verifier: Verifier, task: str, attempt: int) -> None:
        source = (self.arguments.checkout / "KernelBench" / task).read_text()
        begin = time.monotonic()
        try:
            async with asyncio.timeout(TASK_SECONDS):
                result = await verifier.run(VerifyJob(task_source=source, program_source=candidate(source), tier="quick"))
        except TimeoutError:
            result = JobResult(error=f"given up after {TASK_SECONDS} s")
        found = row(task, result, round(time.monotonic() - begin, 2), attempt)
        self.rows[task] = found
        if verifier.environment is not None:
            self.device_name = verifier.environment.device_name
        self.write()
        stages = " ".join(f"{name} {seconds:.1f}" for name, seconds in found.get("stages", {}).items())
        flags = f" {found['flags']}" if found.get("flags") else ""
        print(
            f"{'ok ' if found['ok'] else 'BAD'} {task[:58]:58} {found['seconds']:6.1f} s  {found['status']} {found.get('class')}{flags}"
            f" ({stages}){'' if found['ok'] else ' ' + str(found['message'])[:300]}",
            flush=True,
        )

    async def run(self, tasks: list[str]) -> None:
        sizes = json.loads((ROOT / "bench" / "kernelbench-sizes.json").read_text())
        capacity = self.arguments.memory_gib * GIB
        plan = TaskQueue(tasks, sizes, capacity)
        again: set[str] = set()
        running = 0

        async def work(number: int) -> None:
            nonlocal running
            with tempfile.TemporaryDirectory(prefix="kernelbench-self-") as data:
                verifier = Verifier(self.arguments.device, Path(data), Limits(**LIMITS), spares=3)
                try:
                    while (task := await plan.take()) is not None:
                        running += 1
                        try:
                            await self.one(verifier, task, 2 if task in again else 1)
                        finally:
                            running -= 1
                            await plan.give_back(task)
                        if self.rows[task]["status"] in AGAIN and task not in again:
                            again.add(task)
                            await plan.alone([task])
                finally:
                    await verifier.close()

        workers = [asyncio.create_task(work(number)) for number in range(self.arguments.workers)]
        done, late = await asyncio.wait(workers, timeout=self.arguments.limit_seconds)
        if late:
            await plan.stop()
            for worker in late:
                worker.cancel()
            await asyncio.wait(late, timeout=30)
        for worker in done:
            if worker.exception() is not None:
                raise worker.exception()  # type: ignore[misc]


def summary(rows: list[dict[str, Any]], wanted: int, seconds: float) -> str:
    good = sum(row["ok"] for row in rows)
    lines = [f"{good} of {wanted} passed as orchestration; {len(rows)} were tried, in {seconds:.0f} s"]
    lines.append(f"statuses {dict(Counter(row['status'] for row in rows))}, classes {dict(Counter(str(row.get('class')) for row in rows))}")
    lines += [f"flagged {row['task']}: {', '.join(row['flags'])}" for row in rows if row.get("flags")]
    lines += [f"BAD {row['task']}: {row['status']} {row.get('class')}: {str(row['message'])[:300]}" for row in rows if not row["ok"]]
    slow = sorted(rows, key=lambda row: -row["seconds"])[:8]
    lines.append("slowest: " + ", ".join(f"{row['task'].split('.')[0][:40]} {row['seconds']:.0f} s" for row in slow))
    return "\n".join(lines)


def merged(arguments: argparse.Namespace) -> int:
    parts = [json.loads(path.read_text()) for path in arguments.merge]
    found: dict[str, dict[str, Any]] = {}
    for row in (row for part in parts for row in part["rows"]):  # later parts take precedence unless an earlier one has a good row for the task
        if row["ok"] or not found.get(row["task"], row)["ok"]:
            found[row["task"]] = row
    rows = sorted(found.values(), key=lambda row: _order(row["task"]))
    content = {
        **{name: parts[0][name] for name in ("what", "device", "workers")},
        "seconds": [seconds for part in parts for seconds in (part["seconds"] if isinstance(part["seconds"], list) else [part["seconds"]])],
        "models": len(rows),
        "passed_as_orchestration": sum(row["ok"] for row in rows),
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(content, indent=1) + "\n")
    print(summary(rows, len(rows), max(content["seconds"])))
    return 0 if all(row["ok"] for row in rows) else 1


def _order(task: str) -> tuple[str, int]:
    level, name = task.split("/")
    return level, int(name.split("_")[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, nargs="?")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--shard", default="1/1", help="i/n, i from 1")
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--only", default="", help="regular expression for names of tasks")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--memory-gib", type=float, default=128, help="GPU memory that evaluations may plan with")
    parser.add_argument("--limit-seconds", type=float, default=540)
    parser.add_argument("--resume", action="store_true", help="keep the good rows of --out")
    parser.add_argument("--merge", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.merge:
        return merged(arguments)
    if arguments.checkout is None:
        parser.error("the folder of a KernelBench checkout is missing")
    levels = [arguments.checkout / "KernelBench" / f"level{level}" for level in arguments.levels.split(",")]
    tasks = sorted((f"{path.parent.name}/{path.name}" for level in levels for path in level.glob("*.py")), key=_order)
    tasks = [task for task in tasks if re.search(arguments.only, task)]
    sizes = json.loads((ROOT / "bench" / "kernelbench-sizes.json").read_text())
    tasks.sort(key=lambda task: -sum(sizes.get(task, {}).values()))  # distribute the large tasks evenly over the shards
    index, count = (int(part) for part in arguments.shard.split("/"))
    tasks = tasks[index - 1 :: count]
    series = Series(arguments)
    if arguments.resume and arguments.out.exists():
        series.rows = {row["task"]: row for row in json.loads(arguments.out.read_text())["rows"] if row["ok"] and row["task"] in tasks}
    asyncio.run(series.run([task for task in tasks if task not in series.rows]))
    series.write()
    print(summary(list(series.rows.values()), len(tasks), time.monotonic() - series.begin))
    return 0 if len(series.rows) == len(tasks) and all(row["ok"] for row in series.rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
