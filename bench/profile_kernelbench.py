"""Profiles KernelBench tasks with Nsight Systems and Nsight Compute, both the reference and the built-in compiler's program, and diagnoses them.

    python bench/profile_kernelbench.py CHECKOUT --device cuda:0 --shard 1/4 --limit-seconds 420 --out PART.json
    python bench/profile_kernelbench.py --merge PART.json[.gz] ... --notes bench/results/verifier-profiles-notes.json \\
                                        --out bench/results/verifier-profiles-h200.json

A part is written after every profile, and an existing part is continued. A part stores everything that the rules need, and merging reruns the
diagnoses. The merged result is also written as a Markdown table (same name, .md) with the figures and the diagnosis side by side. A further column is
for the findings of a person who checks the diagnoses; `--notes NOTES.json` ({"levelN/M_name.py": {"reference": "...", "program": "..."}}) fills it.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agents.diagnosis import Ceilings, diagnose  # noqa: E402
from compiler import DeviceFigures, Options, make_plan, print_program  # noqa: E402
from verifier.client import Verifier  # noqa: E402
from verifier.jobs import CaptureJob, JobResult, Profile, ProfileJob, VerifyJob  # noqa: E402
from verifier.limits import Limits  # noqa: E402
from verifier.profiling.diagnosing.bound import MEMORY_SHARE  # noqa: E402
from verifier.profiling.diagnosing.task_facts import TaskFacts, task_facts  # noqa: E402
from verifier.profiling.nsight import counters  # noqa: E402
from verifier.profiling.nsight.metrics import CUDAFORGE  # noqa: E402
from verifier.report import Report  # noqa: E402

# A mixture of tasks that a diagnosis should distinguish. They are dealt to the shards in turn, so each shard has long and short ones.
TASKS = (
    "level1/1_Square_matrix_multiplication_.py",  # library matrix product, compute
    "level1/23_Softmax.py",  # rows that have to be read more than once
    "level3/33_VanillaRNN.py",  # a sequence of small matrix products
    "level1/40_LayerNorm.py",  # few but long rows, so there is too little parallel work
    "level1/26_GELU_.py",  # one pass over memory
    "level3/4_LeNet5.py",  # tiny launches
    "level1/47_Sum_reduction_over_a_dimension.py",  # strided reduction
    "level1/50_conv_standard_2D__square_input__square_kernel.py",  # cuDNN
    "level2/76_Gemm_Add_ReLU.py",  # epilogue
    "level1/36_RMSNorm_.py",  # reduction over channels
    "level3/43_MinGPTCausalAttention.py",  # attention with separate operators
    "level2/37_Matmul_Swish_Sum_GroupNorm.py",  # product followed by a chain
    "level1/89_cumsum.py",  # scan
    "level3/44_MiniGPTBlock.py",  # many different kernels
)
TRIES = 3  # maximum number of programs per task until one passes
TASK_SECONDS = 240
GIB = 1 << 30
LIMITS = {"quick_timing": 1.0, "load": 60, "inputs": 60, "call": 40, "oracle": 120, "correctness": 12, "memory": 20 * GIB, "temporary": 4 * GIB}
SHOWN_KERNELS = 6
KEPT_METRICS = {*counters.METRICS, *CUDAFORGE, MEMORY_SHARE}  # in the merged result
# The metrics that a person needs to check a diagnosis, under short names.
SHOWN = {
    "ns": counters.TIME,
    "dram_pct": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_pct": counters.SM_SHARE,
    "l1_pct": counters.L1_SHARE,
    "l2_pct": counters.L2_SHARE,
    "dram_read_bytes": counters.DRAM_READ,
    "dram_write_bytes": counters.DRAM_WRITE,
    "l1_hit_pct": counters.L1_HITS,
    "l2_hit_pct": counters.L2_HITS,
    "load_bytes_per_sector": counters.BYTES_PER_SECTOR["ld"],
    "store_bytes_per_sector": counters.BYTES_PER_SECTOR["st"],
    "bank_conflicts_ld": counters.BANK_CONFLICTS["ld"],
    "bank_conflicts_st": counters.BANK_CONFLICTS["st"],
    "local_sectors_ld": counters.LOCAL_SECTORS["ld"],
    "local_sectors_st": counters.LOCAL_SECTORS["st"],
    "fma_pipe_pct": counters.PIPE["fma"],
    "tensor_pipe_pct": counters.TENSOR_SHARE,
    "waves": counters.WAVES,
}


def kernels_of(profile: Profile) -> list[dict[str, Any]]:
    found = []
    for kernel in profile.kernels[:SHOWN_KERNELS]:
        found.append(
            {
                "name": kernel.name[:160],
                "own": kernel.own,
                "share": round(kernel.share, 4),
                "calls": kernel.calls / max(profile.iterations, 1),
                "mean_us": round(kernel.mean_us, 2),
                "grid": kernel.grid,
                "block": kernel.block,
                "registers": kernel.registers,
                "occupancy": kernel.occupancy,
                "occupancy_possible": kernel.occupancy_possible,
                "occupancy_limit": kernel.occupancy_limit,
                "stalls": dict(list(kernel.stalls.items())[:4]),
                "spill_bytes": kernel.resources.get("spill_store_bytes"),
                "widest_load_bytes": kernel.resources.get("widest_load_bytes"),
                "counters": {short: round(kernel.metrics[name], 3) for short, name in SHOWN.items() if name in kernel.metrics},
                "metrics": {name: float(f"{value:.6g}") for name, value in kernel.metrics.items()},
            }
        )
    return found


def digest_of(profile: Profile, seconds: float) -> dict[str, Any]:
    return {
        "tool": profile.tool,
        "tool_version": profile.tool_version,
        "fallback_reason": profile.fallback_reason,
        "counters_tool": profile.counters_tool,
        "counters_version": profile.counters_version,
        "counters_reason": profile.counters_reason,
        "wall_us": round(profile.wall_us_per_iteration, 2),
        "device_busy": profile.device_busy,
        "launches": profile.launches_per_iteration,
        "gap_us_p50": profile.gap_us_p50,
        "roofline": profile.roofline.model_dump() if profile.roofline else None,
        "kernels": kernels_of(profile),
        "warnings": profile.warnings,
        "seconds": round(seconds, 1),
    }


def kept_report(report: Report | None) -> dict[str, Any] | None:
    if report is None:
        return None
    kept = report.model_dump(mode="json", exclude={"trials", "problems"})
    for comparison in (kept.get("timing") or {}).get("comparisons", []):
        comparison["program_samples_ms"] = comparison["baseline_samples_ms"] = []
    return kept


def add_diagnosis(row: dict[str, Any], side: str) -> None:
    """Adds the diagnosis that the rules derive from the row."""
    known = row.get("known", {})
    kept, profile = known.get("report"), row.get("profiles", {}).get(side)
    if not kept or not profile:
        return
    report = Report.model_validate(kept)
    if report.timing is None:
        return
    report = report if side == "program" else as_reference(report)
    figures, facts = DeviceFigures.model_validate(known["figures"]), TaskFacts.model_validate(known["facts"])
    found = diagnose(
        report,
        Profile.model_validate(profile),
        Ceilings(figures.kind, figures.bandwidth_gbs, figures.fp32_gflops, figures.launch_us, figures.units),
        bytes_min=facts.bytes_min,
        flops=facts.flops,
        floor_ms=known["floor_ms"],
        facts=facts,
    )
    row[side] |= {"diagnosis": found.model_dump(mode="json"), "call_us": round(report.timing.program_ms * 1e3, 2)}


def as_reference(report: Report) -> Report:
    """Returns the report for the reference itself, that is, the same measurement from the baseline's point of view."""
    assert report.timing is not None
    eager = report.timing.comparisons[0]
    return report.model_copy(update={"timing": report.timing.model_copy(update={"program_ms": eager.baseline_ms})})


class Series:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.begin = time.monotonic()
        self.content: dict[str, Any] = {"what": "KernelBench tasks under nsys and ncu", "device": "", "made": now(), "tasks": {}}
        if arguments.out.exists():
            self.content = json.loads(arguments.out.read_text())

    def left(self) -> float:
        return self.arguments.limit_seconds - (time.monotonic() - self.begin)

    def write(self) -> None:
        scratch = self.arguments.out.with_suffix(".new")
        scratch.write_text(json.dumps(self.content, indent=1) + "\n")
        os.replace(scratch, self.arguments.out)

    async def run(self, verifier: Verifier, tasks: list[str]) -> None:
        for task in tasks:
            row = self.content["tasks"].setdefault(task, {})
            if row.get("done"):
                continue
            if self.left() < 45:
                print(f"cut: {task} and what follows are left for another run", flush=True)
                return
            begin = time.monotonic()
            try:
                async with asyncio.timeout(min(TASK_SECONDS, self.left())):
                    await self.one(verifier, task, row)
                row["done"] = True
            except TimeoutError:
                row["error"] = f"given up after {time.monotonic() - begin:.0f} s"
            row["seconds"] = round(time.monotonic() - begin, 1)
            self.write()
            print(f"{task}: {summary(row)} ({row['seconds']:.0f} s)", flush=True)

    async def one(self, verifier: Verifier, task: str, row: dict[str, Any]) -> None:
        """Runs the capture, the program, both profiles and both diagnoses; every step is stored as it completes."""
        source = (self.arguments.checkout / "KernelBench" / task).read_text()
        environment = await verifier.ready()
        self.content["device"] = environment.device_name
        figures = DeviceFigures.of({**environment.model_dump(), **await verifier.figures()}, self.arguments.device)
        captured = await verifier.run(CaptureJob(task_source=source))
        if captured.capture is None:
            row["error"] = captured.error
            return
        plan = make_plan(captured.capture, source, figures)
        row |= {"flops": captured.capture.flops, "bytes_min": captured.capture.bytes_min, "groups": [group.title for group in plan.own]}
        row["known"] = {"facts": task_facts(captured.capture).model_dump(mode="json"), "floor_ms": plan.floor_ms, "figures": figures.model_dump()}
        program, report = await self.program(verifier, source, plan, row)
        row["known"]["report"] = kept_report(report)
        for side, text in (("reference", None), ("program", program)):
            if side == "program" and text is None:
                continue
            begin = time.monotonic()
            result: JobResult = await verifier.run(ProfileJob(task_source=source, program_source=text, iterations=3, counters=True))
            if result.profile is None:
                row[side] = {"error": result.error}
                self.write()
                continue
            row[side] = digest_of(result.profile, time.monotonic() - begin)
            row.setdefault("profiles", {})[side] = result.profile.model_dump(mode="json", exclude={"protection"})
            add_diagnosis(row, side)
            self.write()

    async def program(self, verifier: Verifier, source: str, plan: Any, row: dict[str, Any]) -> tuple[str | None, Report | None]:
        """Returns the compiler's first program that passes. After a failure, the group with the most operators is left to PyTorch."""
        options, own = Options(), sorted(plan.own, key=lambda group: -len(group.operators))
        for attempt in range(TRIES):
            text = print_program(plan, source, options)
            report = (await verifier.run(VerifyJob(task_source=source, program_source=text, tier="quick"))).report
            row["verdict"] = {"status": report.status, "message": report.message[:300], "tries": attempt + 1} if report else {"status": "error"}
            if report is not None and report.status == "passed":
                speedup = report.speedup
                row["verdict"] |= {"class": report.program_class, "speedup": speedup.model_dump() if speedup else None}
                return text, report
            if attempt < len(own):
                options = options.with_strategy("leave-to-library", own[attempt].id)
        return None, None


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def summary(row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"][:200]
    parts = []
    for side in ("reference", "program"):
        found = row.get(side)
        if found is None:
            parts.append(f"no {side} ({row.get('verdict', {}).get('status')})")
        elif "error" in found:
            parts.append(f"{side}: {found['error'][:120]}")
        else:
            counted = sum(bool(kernel["metrics"]) for kernel in found["kernels"])
            why = f" [{found['counters_reason'][:80]}]" if not counted else ""
            diagnosis = found.get("diagnosis", {})
            parts.append(f"{side}: {found['tool']}, {counted} kernels counted{why}, {diagnosis.get('bottleneck', 'no diagnosis')}")
    return "; ".join(parts)


def diagnosed(found: dict[str, Any]) -> str:
    diagnosis = found.get("diagnosis")
    if not diagnosis:
        return ""
    faults = ", ".join(fault["name"] for fault in diagnosis["faults"][:3])
    first = f"; first: {diagnosis['methods'][0]}" if diagnosis["methods"] else ""
    return f"**{diagnosis['bottleneck']}** {faults}{first}. {diagnosis['text']}"


def table(content: dict[str, Any], notes: dict[str, Any]) -> str:
    lines = [
        "# KernelBench tasks under Nsight Systems and Nsight Compute",
        "",
        f"{content['device']}, {content['made']}. Raw figures: the JSON beside this. Per cent are of the kernel's or the device's peak; `us` is the "
        "median call, outside any profiler. Every task as the reference and as the built-in compiler's first program that passed.",
        "",
        "| task | side | us a call | launches | busy | longest kernel | share | DRAM % | SM % | occupancy | stall | diagnosis | by hand |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task, row in content["tasks"].items():
        for side in ("reference", "program"):
            found = row.get(side)
            if not found or "error" in found:
                said = (found or row).get("error") or row.get("verdict", {}).get("message") or "not profiled"
                lines.append(f"| {task} | {side} | | | | {said[:90]} | | | | | | | |")
                continue
            top = found["kernels"][0] if found["kernels"] else None
            counted = (top or {}).get("counters", {})
            stall = next(((name, share) for name, share in (top or {}).get("stalls", {}).items() if name != "selected"), None)
            cells = [
                task,
                side,
                number(found.get("call_us") or found["wall_us"]),
                number(found["launches"]),
                percent(found["device_busy"]),
                f"`{top['name'][:48]}`{' (own)' if top['own'] else ''}" if top else "",
                percent(top["share"]) if top else "",
                number(counted.get("dram_pct")),
                number(counted.get("sm_pct")),
                percent(top["occupancy"]) if top and top["occupancy"] is not None else "",
                f"{stall[0]} {stall[1]:.0%}" if stall else "",
                diagnosed(found).replace("|", "/"),
                notes.get(task, {}).get(side, "").replace("|", "/"),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    reasons = {
        row[side]["counters_reason"]
        for row in content["tasks"].values()
        for side in ("reference", "program")
        if row.get(side, {}).get("counters_reason")
    }
    lines += ["", *(f"- counters: {reason}" for reason in sorted(reasons))]
    return "\n".join(lines) + "\n"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def complete(row: dict[str, Any]) -> int:
    """Returns how many sides of a task were profiled. The row of a later part replaces an earlier one unless it is less complete."""
    return sum(row.get(side, {}).get("tool") is not None for side in ("reference", "program"))


def merge(arguments: argparse.Namespace) -> int:
    content: dict[str, Any] = {}
    for part in arguments.merge:
        found = json.loads(gzip.decompress(part.read_bytes()) if part.suffix == ".gz" else part.read_text())
        tasks = content.get("tasks", {})
        content = {**found, "tasks": tasks | {task: row for task, row in found["tasks"].items() if complete(row) >= complete(tasks.get(task, {}))}}
    notes = json.loads(arguments.notes.read_text()) if arguments.notes else {}
    content["tasks"] = {task: content["tasks"][task] for task in dict.fromkeys([*TASKS, *content["tasks"]]) if content["tasks"].get(task)}
    for row in content["tasks"].values():
        for side in ("reference", "program"):
            add_diagnosis(row, side)
            for kernel in row.get(side, {}).get("kernels", []):  # the parts keep every counter and the profiles
                kernel["metrics"] = {name: value for name, value in kernel["metrics"].items() if name in KEPT_METRICS}
        row.pop("profiles", None)
    arguments.out.write_text(json.dumps(content, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(table(content, notes))
    both = sum(
        any(row.get(side, {}).get("tool") == "nsys" and row[side].get("counters_tool") == "ncu" for side in ("reference", "program"))
        for row in content["tasks"].values()
    )
    print(table(content, notes))
    print(f"{both} of {len(content['tasks'])} tasks by nsys and ncu")
    return 0


async def profile(arguments: argparse.Namespace) -> int:
    index, of = (int(part) for part in arguments.shard.split("/"))
    tasks = list(arguments.tasks or TASKS)[index - 1 :: of]
    series = Series(arguments)
    with tempfile.TemporaryDirectory(prefix="stitch-profiles-") as data:
        verifier = Verifier(arguments.device, Path(data), Limits(**LIMITS), spares=2)
        try:
            await series.run(verifier, tasks)
        finally:
            series.write()
            await verifier.close()
    rows = [series.content["tasks"].get(task, {}) for task in tasks]
    print(f"{sum(bool(row.get('done')) for row in rows)} of {len(tasks)} tasks done in {time.monotonic() - series.begin:.0f} s on {arguments.device}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, help="a KernelBench checkout")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--limit-seconds", type=float, default=480)
    parser.add_argument("--tasks", nargs="+", metavar="levelN/M_name.py", help="instead of the chosen mixture")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--notes", type=Path, metavar="NOTES.json", help="what a person found, for the table")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="PART.json")
    arguments = parser.parse_args()
    if arguments.merge:
        return merge(arguments)
    if arguments.checkout is None:
        parser.error("give a KernelBench checkout")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    return asyncio.run(profile(arguments))


if __name__ == "__main__":
    sys.exit(main())
