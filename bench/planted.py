"""Tests diagnoses with planted bottlenecks: good CUDA programs with one fault inserted.

Checks whether the fault is named, and whether the first allowed method removes it.

    python bench/planted.py --device cuda:0 --shard 1/4 --out PART.json [--resume] [--limit-seconds 480]
    python bench/planted.py --merge bench/results/verifier-planted.json PART.json ... --out bench/results/verifier-planted.json
    python bench/planted.py --rediagnose bench/results/verifier-planted.json [--facts FACTS.json] [--out FILE.json]
    python bench/planted.py --facts FACTS.json --device cpu     # the tasks' graphs, captured once and without a GPU

Each case (`tests/planted/cases`) is verified as the good program, the faulty one, and those that other methods produce (in the quick tier); the
faulty one is profiled with Nsight Systems and Nsight Compute. A row stores everything that was measured, so that the rules can be rerun without a
GPU. Cases that --base (the results) already contains in their present form are not recorded again. With --good-too, the good programs are profiled as
well, including those of recorded cases: anything that the rules find in them is a false alarm. The recovered fraction is (faulty - mended) / (faulty
- good), where mended is the result of the first method that the diagnosis allows.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import sys
import tempfile
import time
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agents.diagnosis import Ceilings, Diagnosis, diagnose  # noqa: E402
from compiler import DeviceFigures  # noqa: E402
from tests.planted.case import Case, cases  # noqa: E402
from verifier.client import Verifier  # noqa: E402
from verifier.jobs import CaptureJob, Profile, ProfileJob, StageEvent, VerifyJob  # noqa: E402
from verifier.limits import Limits  # noqa: E402
from verifier.profiling.diagnosing.bound import MEMORY_SHARE  # noqa: E402
from verifier.profiling.diagnosing.task_facts import TaskFacts, task_facts  # noqa: E402
from verifier.profiling.nsight import counters  # noqa: E402
from verifier.report import Report  # noqa: E402
from verifier.source import sha256  # noqa: E402

GIB = 1 << 30
LIMITS = {"quick_timing": 0.6, "correctness": 2, "load": 40, "inputs": 40, "call": 30, "oracle": 40, "memory": 20 * GIB, "temporary": 4 * GIB}
JOB_SECONDS = 60.0  # a job that takes longer is abandoned, and the case continues without it
ENOUGH = 30.0  # minimum time that must be left to start another case
SPARES = 8  # number of parties that start while a profiler runs: enough for a case's verifications, so that none waits for an interpreter
KEPT_METRICS = {*counters.METRICS, MEMORY_SHARE}
FALSE_ALARM = 0.3  # a fault reported for a good program counts if it takes more than this fraction of the program's time
KEPT_TIMELINE = 400_000  # maximum size in bytes after compression
WORTH = 1.3  # a fault with a smaller slowdown does not count
NAMED, RECOVERED, RECOVERED_SHARE = 0.9, 0.8, 0.8


class Series:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.begin = time.monotonic()
        self.content: dict[str, Any] = {"what": "planted bottlenecks", "made": now(), "device": "", "ceilings": {}, "rows": {}}
        if arguments.resume and arguments.out.exists():
            self.content = json.loads(arguments.out.read_text())

    def left(self) -> float:
        return self.arguments.limit_seconds - (time.monotonic() - self.begin)

    def write(self) -> None:
        scratch = self.arguments.out.with_suffix(".new")
        scratch.write_text(json.dumps(self.content) + "\n")
        os.replace(scratch, self.arguments.out)

    async def run(self, verifier: Verifier, chosen: list[Case]) -> None:
        environment = await verifier.ready()
        figures = DeviceFigures.of({**environment.model_dump(), **await verifier.figures()}, self.arguments.device)
        self.content["device"] = environment.device_name
        self.content["environment"] = environment.model_dump(mode="json", exclude={"device"})
        self.content["ceilings"] = {
            "kind": figures.kind,
            "bandwidth_gbs": figures.bandwidth_gbs,
            "gflops": figures.fp32_gflops,
            "launch_us": figures.launch_us,
            "workers": figures.units,
        }
        for case in chosen:
            row = self.content["rows"].setdefault(case.name, {})
            if recorded(row, case, self.arguments.good_too):
                continue
            if recorded(self.arguments.known_rows.get(case.name, {}), case):
                row |= self.arguments.known_rows[case.name]  # only the good program's profile is missing
            done = recorded(row, case)
            if self.left() < ENOUGH:
                print(f"cut: {case.name} and what follows are left for another run (--resume)", flush=True)
                return
            begin = time.monotonic()
            if done:
                await self.profile(verifier, case, row, "good")
            else:
                row.clear()
                await self.one(verifier, case, row)
                row["seconds"] = round(time.monotonic() - begin, 1)
            row["done"] = "given up" not in json.dumps([row["programs"], row.get("profile_faulty")])
            self.write()
            judged = judge(row, case, self.content, self.arguments.known)
            print(f"{case.name:32} {line(judged)}  {time.monotonic() - begin:.0f} s {row['steps']}", flush=True)

    async def one(self, verifier: Verifier, case: Case, row: dict[str, Any]) -> None:
        """Measures one case; each step is stored as it completes."""
        row |= {"task": sha256(case.task), "faulty_program": sha256(case.program("faulty")), "precision": case.precision, "programs": {}, "steps": {}}
        for variant in ("good", "faulty", *(f"mended {method}" for method in case.mended)):
            job = VerifyJob(task_source=case.task, program_source=case.program(variant), precision=case.precision, tier="quick")
            result = await self.job(verifier, job, row, variant)
            report = result.report if result is not None else None
            row["programs"][variant] = digest_of(report, result.error if result is not None else "given up")
        for side in ("faulty", "good") if self.arguments.good_too else ("faulty",):
            await self.profile(verifier, case, row, side)

    async def profile(self, verifier: Verifier, case: Case, row: dict[str, Any], side: str) -> None:
        job = ProfileJob(task_source=case.task, program_source=case.program(side), precision=case.precision, iterations=3, counters=True)
        result = await self.job(verifier, job, row, f"profile {side}")
        if result is None or result.profile is None:
            row[f"profile_{side}"] = {"error": result.error if result is not None else "given up"}
            return
        row[f"profile_{side}"] = kept_profile(result.profile.model_dump(mode="json", exclude={"protection"}))
        packed = zlib.compress(result.timeline or b"", 6)
        if side == "faulty" and len(packed) <= KEPT_TIMELINE:
            row["timeline"] = base64.b64encode(packed).decode()

    async def job(self, verifier: Verifier, job: Any, row: dict[str, Any], step: str) -> Any:
        row.setdefault("steps", {})
        begin = time.monotonic()

        def on_stage(event: StageEvent) -> None:
            if event.detail.startswith("counters of"):  # the timeline is complete by then
                row["steps"][f"{step}, timeline"] = round(time.monotonic() - begin, 1)

        try:
            async with asyncio.timeout(min(JOB_SECONDS, max(self.left(), 5.0))):
                return await verifier.run(job, on_stage)
        except TimeoutError:
            return None
        finally:
            row["steps"][step] = round(time.monotonic() - begin, 1)


def current(row: dict[str, Any], case: Case) -> bool:
    """Returns whether a row belongs to the case in its present form."""
    return row.get("task") == sha256(case.task) and row.get("faulty_program") == sha256(case.program("faulty"))


def recorded(row: dict[str, Any], case: Case, good_too: bool = False) -> bool:
    return bool(row.get("done")) and current(row, case) and (not good_too or "profile_good" in row)


def kept_profile(profile: dict[str, Any]) -> dict[str, Any]:
    """Returns the counters that a rule can read; the others are device attributes."""
    for kernel in profile.get("kernels", []):
        kernel["metrics"] = {name: float(f"{value:.6g}") for name, value in kernel["metrics"].items() if name in KEPT_METRICS}
    return profile


def digest_of(report: Report | None, error: str) -> dict[str, Any]:
    if report is None:
        return {"status": "error", "message": error}
    kept = report.model_dump(mode="json", exclude={"trials", "protection", "environment", "problems"})
    for comparison in (kept.get("timing") or {}).get("comparisons", []):
        comparison["program_samples_ms"] = [[round(v, 5) for v in block] for block in comparison["program_samples_ms"]]
        comparison["baseline_samples_ms"] = [[round(v, 5) for v in block] for block in comparison["baseline_samples_ms"]]
    return kept


# The rules, applied to the recorded measurements


def judge(row: dict[str, Any], case: Case, content: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Compares the diagnosis of the faulty program with the case's header. The rules see neither the header nor the case's name."""
    found: dict[str, Any] = {"fault": case.fault, "expected": list(case.diagnoses), "methods": list(case.methods)}
    programs = row.get("programs", {})
    times = {variant: (report.get("timing") or {}).get("program_ms") for variant, report in programs.items()}
    found["ms"] = times
    broken = [
        f"{variant}: {report['status']} {report.get('message', '')[:160]}" for variant, report in programs.items() if report["status"] != "passed"
    ]
    if broken or not times.get("good") or not times.get("faulty"):
        return {**found, "problem": "; ".join(broken) or "not measured"}
    found["cost"] = times["faulty"] / times["good"]
    profile = row.get("profile_faulty", {"error": "no profile"})
    if "error" in profile:
        return {**found, "problem": f"no profile: {profile['error'][:200]}"}
    facts = TaskFacts.model_validate(known[row["task"]]) if row["task"] in known else None
    diagnosis = diagnosed(programs["faulty"], profile, content, facts)
    if "kernels" in row.get("profile_good", {}):
        alarms = diagnosed(programs["good"], row["profile_good"], content, facts).faults
        found["good_program"] = {cause.name: round(cause.lost_us / (times["good"] * 1e3), 3) for cause in reversed(alarms)}
    found["diagnosis"] = diagnosis.model_dump(mode="json")
    found["named"] = diagnosis.faults[0].name if diagnosis.faults else None
    found["named_right"] = found["named"] in case.diagnoses
    found["class_right"] = diagnosis.bottleneck in case.classes
    first = diagnosis.methods[0] if diagnosis.methods else None
    found["first_method"] = first
    after = None
    if first in case.methods:
        after = times["good"]
    elif first is not None:
        after = times.get(f"mended {first}")
    lost = times["faulty"] - times["good"]
    found["recovered"] = (times["faulty"] - after) / lost if after is not None and lost > 0 else 0.0
    return found


def diagnosed(report: dict[str, Any], profile: dict[str, Any], content: dict[str, Any], facts: TaskFacts | None) -> Diagnosis:
    return diagnose(
        report_of(report, content),
        Profile.model_validate({**profile, "protection": {"sandbox": "process", "layers": []}}),
        Ceilings(**content["ceilings"]),
        bytes_min=facts.bytes_min if facts else None,
        flops=facts.flops if facts else None,
        floor_ms=None,
        facts=facts,
    )


def report_of(kept: dict[str, Any], content: dict[str, Any]) -> Report:
    protection = {"sandbox": "process", "layers": []}
    return Report.model_validate({**kept, "environment": {**content["environment"], "device": "cuda:0"}, "protection": protection})


def line(judged: dict[str, Any]) -> str:
    if "problem" in judged:
        return f"PROBLEM {judged['problem'][:150]}"
    ms, mark = judged["ms"], "right" if judged["named_right"] else f"WRONG (is {judged['expected'][0]})"
    return (
        f"{ms['good'] * 1e3:8.1f} -> {ms['faulty'] * 1e3:8.1f} us ({judged['cost']:5.2f}x)  {judged['diagnosis']['bottleneck']:9} "
        f"{judged['named'] or '-':20} {mark}; first {judged['first_method'] or '-'}: {judged['recovered']:.0%}"
        f"{'; good program: ' + str(judged['good_program']) if judged.get('good_program') else ''}"
    )


def summary(judged: dict[str, dict[str, Any]]) -> dict[str, Any]:
    usable = [row for row in judged.values() if "problem" not in row]
    worth = [row for row in usable if row["cost"] >= WORTH]
    named = sum(row["named_right"] for row in worth)
    recovered = sum(row["recovered"] >= RECOVERED for row in worth)
    count = max(len(worth), 1)
    watched = [row["good_program"] for row in usable if "good_program" in row]
    return {
        "cases": len(judged),
        "usable": len(usable),
        f"cost at least {WORTH}x": len(worth),
        "fault named": named,
        "class right": sum(row["class_right"] for row in worth),
        f"recovered {RECOVERED:.0%} or more": recovered,
        "good programs profiled": len(watched),
        f"of them, with a fault that is said to cost {FALSE_ALARM:.0%}": sum(max(found.values(), default=0.0) > FALSE_ALARM for found in watched),
        "named_share": round(named / count, 3),
        "recovered_share": round(recovered / count, 3),
        "shown": len(worth) >= 40 and named / count >= NAMED and recovered / count >= RECOVERED_SHARE,
    }


def rediagnose(content: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Reruns the rules over the recorded rows and prints the results."""
    known_cases = {case.name: case for case in cases()}
    judged = {name: judge(row, known_cases[name], content, known) for name, row in sorted(content["rows"].items()) if name in known_cases}
    for name in [name for name in judged if not current(content["rows"][name], known_cases[name])]:
        print(f"{name:32} has changed since it was recorded: {line(judged.pop(name))}")
    for name, row in judged.items():
        print(f"{name:32} {line(row)}")
    content["judged"], content["summary"] = judged, summary(judged)
    print(json.dumps(content["summary"], indent=1))
    return content


# Commands


async def record(arguments: argparse.Namespace) -> int:
    index, of = (int(part) for part in arguments.shard.split("/"))
    arguments.known_rows = json.loads(arguments.base.read_text())["rows"] if arguments.base.exists() else {}
    left = [case for case in cases() if not recorded(arguments.known_rows.get(case.name, {}), case, arguments.good_too)]
    chosen = [case for case in left if not arguments.cases or case.name in arguments.cases][index % of :: of]
    series = Series(arguments)
    with tempfile.TemporaryDirectory(prefix="stitch-planted-") as data:
        verifier = Verifier(arguments.device, Path(data), Limits(**LIMITS), spares=SPARES)
        try:
            await series.run(verifier, chosen)
        finally:
            series.write()
            await verifier.close()
    done = sum(bool(series.content["rows"].get(case.name, {}).get("done")) for case in chosen)
    print(f"{done} of {len(chosen)} cases recorded in {time.monotonic() - series.begin:.0f} s on {arguments.device}")
    return 0


async def capture(arguments: argparse.Namespace) -> int:
    """Captures the facts of every task with the `capture` job, which needs no GPU."""
    known = arguments.known
    with tempfile.TemporaryDirectory(prefix="stitch-planted-") as data:
        verifier = Verifier(arguments.device, Path(data), Limits(**{**LIMITS, "capture": 240}), spares=1)
        try:
            for case in cases():
                if sha256(case.task) in known or (arguments.cases and case.name not in arguments.cases):
                    continue
                result = await verifier.run(CaptureJob(task_source=case.task))
                if result.capture is None:
                    print(f"{case.name}: {result.error[:200]}", flush=True)
                    continue
                known[sha256(case.task)] = task_facts(result.capture).model_dump(mode="json")
                print(f"{case.name}: {known[sha256(case.task)]}", flush=True)
                arguments.facts.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        finally:
            await verifier.close()
    return 0


def merge(parts: list[Path]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for part in parts:
        found = json.loads(part.read_text())
        for row in found["rows"].values():
            for side in ("profile_faulty", "profile_good"):
                if side in row:
                    row[side] = kept_profile(row[side])
        content = {**found, "rows": {**content.get("rows", {}), **{name: row for name, row in found["rows"].items() if row.get("done")}}}
    return content


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--good-too", action="store_true", help="profile the good programs as well")
    parser.add_argument("--base", type=Path, default=ROOT / "bench" / "results" / "verifier-planted.json", help="rows that are recorded already")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file has already")
    parser.add_argument("--limit-seconds", type=float, default=480)
    parser.add_argument("--facts", type=Path, default=ROOT / "tests" / "planted" / "facts.json", help="what is known of the tasks' graphs")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="PART.json")
    parser.add_argument("--rediagnose", type=Path, metavar="FILE.json")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    arguments = parser.parse_args()
    arguments.known = json.loads(arguments.facts.read_text()) if arguments.facts.exists() else {}
    if arguments.merge or arguments.rediagnose:
        content = merge(arguments.merge) if arguments.merge else json.loads(arguments.rediagnose.read_text())
        content = rediagnose(content, arguments.known)
        if arguments.out:
            arguments.out.write_text(json.dumps(content) + "\n")
        return 0
    if arguments.out is None:
        return asyncio.run(capture(arguments))
    return asyncio.run(record(arguments))


if __name__ == "__main__":
    sys.exit(main())
