"""Runs many verifications in a row on one warm verifier; every tenth program hangs, crashes, exhausts memory or forks without end.

    python bench/robustness.py --device cpu|cuda:0 --count 200 --out FILE.json [--resume] [--limit-seconds 540] [--spares N]

Every verdict is known in advance. After each run, the free GPU memory (NVML) and the processes under the judge are checked. At the end, the verifier
is closed, and nothing may remain. The static stage is off so that every program reaches the sandbox. The result is written after each run; `--resume`
continues. The exit status is 1 if any verdict was unexpected or if something was left behind.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from robustness_programs import Case, series, task  # noqa: E402

from verifier.client import Verifier  # noqa: E402
from verifier.devices.cuda_driver import Nvml, driver, facts  # noqa: E402
from verifier.jobs import VerifyJob  # noqa: E402
from verifier.limits import GIB, Limits  # noqa: E402

NOISE = 16 << 20  # fluctuation of the driver's own figure on an idle GPU
PATIENCE = 3.0  # maximum seconds until a killed process has left the process table
OVERALL = {"cpu": 300.0, "cuda": 100.0}  # time limit of one verification; if it takes longer, the verifier itself hangs
OTHERS = (
    6  # other parties, in addition to the spares, that may exist between two jobs: references, a builder, the next runner, and baselines in flight
)


def limits(kind: str) -> Limits:
    short = {
        "load": 15,
        "inputs": 8,
        "build": 90,
        "memory": (4 if kind == "cuda" else 2) * GIB,
        "temporary": GIB,
        "processes": 256,
        "output_flood": 8 << 20,
    }
    return Limits(call=4, quick_timing=1.0 if kind == "cuda" else 0.3, correctness=8, **short)


def processes() -> dict[int, tuple[int, str]]:
    """Returns the parent and command line of every live process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if state != "Z":
            found[int(folder.name)] = (int(parent), command)
    return found


def below(ancestor: int) -> set[int]:
    tree = processes()
    family, grew = {ancestor}, True
    while grew:
        more = {pid for pid, (parent, _) in tree.items() if parent in family} - family
        grew, family = bool(more), family | more
    return family - {ancestor}


def in_groups(judge: int) -> set[int]:
    """Returns the processes in control groups that the judge created."""
    found: set[int] = set()
    for base in ("", "memory", "pids", "unified"):
        for file in (Path("/sys/fs/cgroup") / base).glob(f"stitchwork-{judge}-*/cgroup.procs"):
            try:
                found |= {int(line) for line in file.read_text().split()}
            except (OSError, ValueError):
                continue
    return found


class Memory:
    """Returns the free GPU memory that the driver reports, without creating a context; None on the CPU."""

    def __init__(self, device: str):
        self.nvml = Nvml(facts(int(device.partition(":")[2] or 0)).uuid) if device.startswith("cuda") and driver() is not None else None

    def free(self) -> int | None:
        return self.nvml.free_bytes() if self.nvml is not None else None


class Series:
    def __init__(self, arguments: argparse.Namespace, folder: Path):
        self.arguments = arguments
        self.kind = "cuda" if arguments.device.startswith("cuda") else "cpu"
        self.spares = arguments.spares or (6 if self.kind == "cuda" else 2)
        self.verifier = Verifier(arguments.device, folder, limits=limits(self.kind), spares=self.spares, without_static=True)
        self.memory = Memory(arguments.device)
        self.plan = series(self.kind, arguments.count, arguments.every)
        self.rows: list[dict] = []
        self.facts: dict = {}
        self.left_at_end = 0
        self.under_judge = 0
        self.at_rest: list[int | None] = [None, None]  # free GPU memory before the verifier started and after it was closed

    async def run(self) -> int:
        if self.arguments.resume and self.arguments.out.exists():
            kept = json.loads(self.arguments.out.read_text())
            self.rows, self.facts = [row for row in kept["runs"] if row["right"]], kept["environment"]
        done = {row["number"] for row in self.rows}
        self.at_rest[0] = self.memory.free()
        begin = time.monotonic()
        await self.verifier.ready()
        judge = self.verifier.judge_pid or 0
        first = await self._verify(self.plan[0])  # warms up the reference and builds the library
        if first.report is not None:
            protection = first.report.protection
            self.facts = {**first.report.environment.model_dump(), "layers": protection.layers, "missing": protection.missing}
        everyone = {judge} | below(judge)
        for number, case in enumerate(self.plan):
            if number in done:
                continue
            if time.monotonic() - begin > self.arguments.limit_seconds:
                print(f"stopped after {self.arguments.limit_seconds:g} s; --resume goes on")
                break
            self.rows.append(await self._one(number, case))
            everyone |= below(self.verifier.judge_pid or 0)
            self._write(time.monotonic() - begin)
        await self.verifier.close()
        deadline = time.monotonic() + 3 * PATIENCE
        while time.monotonic() < deadline and self._left(everyone, judge):
            await asyncio.sleep(0.2)
        self.left_at_end = len(self._left(everyone, judge))
        deadline = time.monotonic() + 10
        while (missing := self._missing()) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)  # the driver releases a killed process's memory a moment later
        summary = self._write(time.monotonic() - begin)
        print(json.dumps(summary))
        complete = summary["of"] == self.arguments.count
        return 0 if complete and summary["right"] == summary["of"] and not summary["processes_left"] and missing <= NOISE else 1

    async def _verify(self, case: Case):
        job = VerifyJob(task_source=task(self.kind), program_source=case.source)
        return await asyncio.wait_for(self.verifier.run(job), OVERALL[self.kind])

    async def _one(self, number: int, case: Case) -> dict:
        before, judge = self.memory.free(), self.verifier.judge_pid
        begin = time.monotonic()
        tries = []
        # If the verdict is that the machine was too busy, it is inconclusive, so the program is measured once more.
        for _ in range(2):
            try:
                result = await self._verify(case)
                report = result.report
                status, message = (report.status, report.message) if report is not None else ("error", result.error)
                reasons = report.reasons if report is not None else {}
            except TimeoutError:
                status, message, reasons = "hung", f"no verdict in {OVERALL[self.kind]:g} s", {}
            tries.append(status)
            if status != "inconclusive":
                break
        seconds = time.monotonic() - begin
        right = status in case.statuses and re.search(case.because, message) is not None
        extra = await self._extra()
        row = {
            "number": number,
            "program": case.name,
            "expected": list(case.statuses),
            "got": status,
            "right": right,
            "message": message[:200],
            "seconds": round(seconds, 3),
            "free_before": before,
            "free_after": self.memory.free(),
            "processes_left": extra,
            "processes": self.under_judge,
            "judge_stayed": judge == self.verifier.judge_pid,
            "tries": tries,
        }
        if "gpu_memory" in reasons:
            row["leak_reported"] = reasons["gpu_memory"]
        if not right or extra or not row["judge_stayed"]:
            print(f"{number}: {case.name}: {status}, expected {'|'.join(case.statuses)}; {extra} processes too many; {message[:150]}", flush=True)
        return row

    async def _extra(self) -> int:
        """Returns the number of processes under the judge beyond its waiting parties, each of which consists of two bubblewrap processes and an
        interpreter."""
        judge = self.verifier.judge_pid
        if judge is None:
            return 0  # the judge has just exited, so any leftovers are counted at the end
        allowed = 3 * (self.spares + OTHERS)
        deadline = time.monotonic() + PATIENCE
        while (count := len(below(judge) | in_groups(judge))) > allowed and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        self.under_judge = count
        return max(count - allowed, 0)

    @staticmethod
    def _left(everyone: set[int], judge: int) -> set[int]:
        alive = processes()
        return {pid for pid in everyone if pid in alive and ("verifier" in alive[pid][1] or "bwrap" in alive[pid][1])} | in_groups(judge)

    def _missing(self) -> int:
        """Returns how many bytes of GPU memory were free before the verifier started but are not free now."""
        self.at_rest[1] = self.memory.free()
        before, after = self.at_rest
        return max(before - after, 0) if before is not None and after is not None else 0

    def _write(self, seconds: float) -> dict:
        rows = sorted(self.rows, key=lambda row: row["number"])
        before, after = self.at_rest
        steady = [row["free_after"] for row in rows if row["free_after"] is not None and row["expected"] == ["passed"]]
        summary = {
            "right": sum(row["right"] for row in rows),
            "of": len(rows),
            "leaked_bytes": max(before - after, 0) if before is not None and after is not None else 0 if self.kind == "cpu" else None,
            "drift_bytes": max(steady[0] - min(steady[-3:]), 0) if len(steady) > 3 else None,
            "processes_left": self.left_at_end + sum(row["processes_left"] for row in rows),
            "judge_deaths": sum(not row["judge_stayed"] for row in rows),
            "seconds": round(seconds, 1),
        }
        document = {"device": self.arguments.device, "environment": self.facts, "summary": summary, "runs": rows}
        scratch = self.arguments.out.with_suffix(".part")
        scratch.write_text(json.dumps(document, indent=1))
        os.replace(scratch, self.arguments.out)
        return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--every", type=int, default=10, help="each how many-th program is a faulty one")
    parser.add_argument("--spares", type=int, default=0, help="parties that wait with torch imported (6 on a GPU, 2 on the CPU)")
    parser.add_argument("--resume", action="store_true", help="keep the right verdicts of --out and go on")
    parser.add_argument("--limit-seconds", type=float, default=540.0, help="no further verification is begun after this")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, help="of the verifier; default: one that is empty first and gone afterwards")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="robustness-") as folder:
        return asyncio.run(Series(arguments, arguments.data_dir or Path(folder)).run())


if __name__ == "__main__":
    raise SystemExit(main())
