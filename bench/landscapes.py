"""Measures landscapes: for each of thirty tasks, a few hundred programs from the built-in compiler are timed once, and their times are looked up from
then on.

    python bench/landscapes.py --devices cuda:0,cuda:1 --keep DIR --limit-seconds 280 --confirm-seconds 260   everything in one command
    python bench/landscapes.py --device cuda:0 --shard 0/4 --keep DIR --limit-seconds 280                     one shard; again: it continues
    python bench/landscapes.py --device cuda:0 --shard 0/4 --keep DIR --confirm-seconds 260 --only-confirm    its sample through the verifier
    python bench/landscapes.py --keep DIR --merge                                                             merges the parts into one table
    python bench/landscapes.py --device cpu --keep DIR --tasks softmax,swiglu --wanted 24 --most 96           trying it out
    python bench/landscapes.py --device cuda:0 --facts FACTS.json --keep DIR --compile-only                   no GPU: kernels for a GPU host's DIR

DIR contains one part per shard (so an interrupted survey can continue), the compiled kernels and the logs. `--confirm-seconds` sends each task's best
program and a random twentieth of the others through the real verifier in the quick tier, and the table records how well the two agree.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from agents.arena.landscape import PASSED, Landscape, LandscapeError, Table, load, merged, save  # noqa: E402
from bench.surveying.preparing import MOST, WANTED, prepare  # noqa: E402
from bench.surveying.suite import Subject, subjects  # noqa: E402
from bench.surveying.survey import Shard, restarted  # noqa: E402
from verifier.devices.host_cores import cores  # noqa: E402

CONFIRMED_SHARE = 0.05
SEED = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", metavar="A,B", help="one shard for each of these devices, all at once")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th task, from the I-th")
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR")
    parser.add_argument("--results", type=Path, metavar="FILE", help="where the merged table goes (default: bench/results/landscapes-DEVICE.json)")
    parser.add_argument("--limit-seconds", type=float, default=600.0, help="for measuring")
    parser.add_argument("--confirm-seconds", type=float, default=0.0, help="for the real verifier")
    parser.add_argument("--tasks", default="", metavar="A,B", help="only these")
    parser.add_argument("--wanted", type=int, default=WANTED, help="programs that differ, a task")
    parser.add_argument("--most", type=int, default=MOST, help="points a task")
    facts = "what plans know of the device: a verifier's environment as JSON (default: what the driver says); the same for all sittings"
    parser.add_argument("--facts", type=Path, metavar="FILE", help=facts)
    parser.add_argument("--compile-only", action="store_true", help="without the device; wants --facts")
    parser.add_argument("--merge", action="store_true", help="only merge the parts in DIR")
    parser.add_argument("--only-confirm", action="store_true")
    parser.add_argument("--measuring", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.keep = arguments.keep.resolve()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    try:
        if arguments.merge:
            return merge(arguments)
        if arguments.compile_only:
            print(f"{shard_of(arguments).compile()} libraries")
            return 0
        if arguments.devices:
            return survey(arguments)
        if arguments.measuring:
            return 0 if shard_of(arguments).measure() else 3
        return one_shard(arguments)
    except LandscapeError as error:
        print(f"landscapes: {error}", file=sys.stderr)
        return 2


def survey(arguments: argparse.Namespace) -> int:
    """Runs one process per device, then merges the table."""
    devices = arguments.devices.split(",")
    children = []
    for number, device in enumerate(devices):
        command = [sys.executable, __file__, *passed_on(arguments, device, f"{number}/{len(devices)}")]
        with (arguments.keep / f"shard-{number}.log").open("a") as log:
            children.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
    codes = [child.wait() for child in children]
    for number in range(len(devices)):
        lines = (arguments.keep / f"shard-{number}.log").read_text().strip().splitlines()
        print(f"shard {number}: exit {codes[number]}", *lines[-12:], sep="\n  ")
    arguments.device = devices[0]
    return merge(arguments) or max(codes)


def passed_on(arguments: argparse.Namespace, device: str, shard: str) -> list[str]:
    given = ["--device", device, "--shard", shard, "--keep", str(arguments.keep), "--limit-seconds", str(arguments.limit_seconds)]
    given += ["--confirm-seconds", str(arguments.confirm_seconds), "--wanted", str(arguments.wanted), "--most", str(arguments.most)]
    given += ["--facts", str(arguments.facts)] if arguments.facts else []
    given += ["--tasks", arguments.tasks] if arguments.tasks else []
    return given + (["--only-confirm"] if arguments.only_confirm else [])


def one_shard(arguments: argparse.Namespace) -> int:
    """Measures a shard in a child process, because a program may crash it, and then verifies a sample."""
    shard = shard_of(arguments)
    code = 0
    if not arguments.only_confirm:

        def command(seconds: float) -> list[str]:
            arguments.limit_seconds = seconds
            return [sys.executable, __file__, *passed_on(arguments, arguments.device, arguments.shard), "--measuring"]

        shard.flying.unlink(missing_ok=True)  # left over from an interrupted survey, in which no program crashed
        code = restarted(command, shard.flying, arguments.limit_seconds)
    if arguments.confirm_seconds and shard.out.exists():
        asyncio.run(confirm(shard, arguments.confirm_seconds))
    return code


def shard_of(arguments: argparse.Namespace) -> Shard:
    at, _, of = arguments.shard.partition("/")
    kind = arguments.device.split(":")[0]
    chosen = [s for s in subjects(kind) if not arguments.tasks or s.name in arguments.tasks.split(",")]
    if not chosen:
        raise LandscapeError(f"there are no tasks {arguments.tasks}; there are {', '.join(s.name for s in subjects(kind))}")
    return Shard(
        device=arguments.device,
        subjects=chosen[int(at) :: int(of)],
        out=arguments.keep / f"part-{at}.json",
        data_dir=arguments.keep / f"data-{at}",
        facts=json.loads(arguments.facts.read_text()) if arguments.facts else None,
        wanted=arguments.wanted,
        most=arguments.most,
        until=time.monotonic() + arguments.limit_seconds,
        cores=worker_cores("cpu" if arguments.compile_only else arguments.device),
    )


def worker_cores(device: str) -> list[int]:
    """Returns the processors of the host that belong to this device, excluding those that are used for measurements."""
    from verifier.devices.opening import open_device

    host = [processor for core in cores(os.sched_getaffinity(0)) for processor in core]
    return host if device == "cpu" else open_device(device, Path(), later=True).wide_on or host


def sample(landscape: Landscape) -> list[tuple[int, str]]:
    """Chooses (point, reason) pairs for the verifier: the best, and a random twentieth of the other distinct programs that passed."""
    first: dict[int, int] = {}
    for index, number in enumerate(landscape.program):
        if landscape.status[index] == PASSED:
            first.setdefault(number, index)
    if not first:  # nothing has been measured yet, or nothing is correct
        return []
    best = landscape.best
    others = [index for number, index in first.items() if number != landscape.program[best]]
    count = max(1, round(CONFIRMED_SHARE * len(first)))
    return [(best, "best"), *((index, "random") for index in random.Random(SEED).sample(others, min(count, len(others))))]


async def confirm(shard: Shard, seconds: float) -> None:
    """Verifies the sample's programs as it would a user's programs until the time is up, and writes the result after every program."""
    from verifier.client import Verifier
    from verifier.jobs import VerifyJob

    until = time.monotonic() + seconds
    table = load(shard.out)
    by_name = {landscape.name: landscape for landscape in table.landscapes}
    named = [subject for subject in shard.subjects if subject.name in by_name]
    with ProcessPoolExecutor(max(1, min(len(shard.cores), 8)), mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(programs_of, subject, by_name[subject.name], shard) for subject in named]
        wanted = [future.result() for future in futures]
    queue = [entry for rank in range(max(map(len, wanted), default=0)) for entries in wanted for entry in entries[rank : rank + 1]]
    client = Verifier(shard.device, shard.data_dir)
    try:
        for name, index, why, program in queue:
            landscape = by_name[name]
            if time.monotonic() > until:
                print(f"  the time for the verifier is up: {sum(len(x.confirmed) for x in table.landscapes)} of {len(queue)} programs", flush=True)
                break
            if any(entry["point"] == index for entry in landscape.confirmed):
                continue
            result = await client.run(VerifyJob(task_source=landscape.source, program_source=program, tier="quick"))
            landscape.confirmed.append(compared(landscape, index, why, result))
            save_part(table, shard.out)
    finally:
        await client.close()
    print(f"  verifier: {json.dumps(agreement(table))}", flush=True)


def programs_of(subject: Subject, landscape: Landscape, shard: Shard) -> list[tuple[str, int, str, str]]:
    """Returns the sample of one task with its programs generated again; they must be identical to the measured ones."""
    prepared = prepare(subject, shard.figures(), shard.wanted, shard.most)
    if prepared.space.program != landscape.program:
        raise LandscapeError(f"{subject.name} has other programs than when it was measured: measure it again")
    return [(subject.name, index, why, prepared.space.sources[landscape.program[index]]) for index, why in sample(landscape)]


def compared(landscape: Landscape, index: int, why: str, result) -> dict:
    report = result.report
    entry = {"point": index, "chosen": why, "table_us": landscape.us[index], "table_speedup": round(landscape.speedup(index), 4)}
    if report is None or report.timing is None:
        status = report.status if report is not None else "infrastructure_error"
        return {**entry, "status": status, "message": (report.message if report is not None else result.error)[:300]}
    speedup = report.speedup
    entry |= {"status": report.status, "verifier_us": round(report.timing.program_ms * 1e3, 3), "speedup": speedup.model_dump() if speedup else None}
    return {**entry, "ratio": round(landscape.us[index] / (report.timing.program_ms * 1e3), 4)}


def agreement(table: Table) -> dict:
    """Returns how well the table and the verifier agree on times and on speedups. In speedups, factors that are common to all programs of a task
    cancel."""
    rows = [entry for landscape in table.landscapes for entry in landscape.confirmed]
    timed = [entry for entry in rows if entry.get("ratio")]
    said = {"programs": len(rows), "passed": sum(entry["status"] == "passed" for entry in rows), "statuses": {}}
    for entry in rows:
        said["statuses"][entry["status"]] = said["statuses"].get(entry["status"], 0) + 1
    if timed:
        said["time_ratio"] = spread([entry["ratio"] for entry in timed])
        speedups = [entry for entry in timed if entry.get("speedup")]
        said["speedup_ratio"] = spread([entry["table_speedup"] / entry["speedup"]["ratio"] for entry in speedups])
        inside = [entry["speedup"]["low"] * 0.95 <= entry["table_speedup"] <= entry["speedup"]["high"] * 1.05 for entry in speedups]
        said["within_interval_and_5_percent"] = round(sum(inside) / len(inside), 3) if inside else None
    return said


def spread(values: list[float]) -> dict:
    ordered = sorted(values)
    at = lambda share: round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 4)  # noqa: E731
    return {"median": round(statistics.median(ordered), 4), "p10": at(0.1), "p90": at(0.9), "least": at(0), "most": at(1)}


def save_part(table: Table, path: Path) -> None:
    written = save(table, path.with_suffix(".json"))
    if written != path:
        written.replace(path)


def merge(arguments: argparse.Namespace) -> int:
    parts = [load(path) for path in sorted(arguments.keep.glob("part-*.json"))]
    table = merged(parts)
    kind = "cpu" if table.device.get("device", "").startswith("cpu") else table.device.get("device_model", "gpu")
    path = arguments.results or ROOT / "bench" / "results" / f"landscapes-{kind}.json"
    table.about = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python bench/landscapes.py --devices {arguments.devices or arguments.device}",
        "tasks": len(table.landscapes),
        "programs": sum(landscape.measured for landscape in table.landscapes),
        "points": sum(map(len, table.landscapes)),
        "least_programs_of_a_task": min(landscape.measured for landscape in table.landscapes),
        "device_seconds": round(sum(sum(part.about.get("device_seconds", {}).values()) for part in parts), 1),
        "agreement": agreement(table),
    }
    written = save(table, path)
    print(json.dumps(table.about, indent=1))
    for landscape in table.landscapes:
        print(row(landscape))
    print(f"{written} ({written.stat().st_size / 1e6:.2f} MB)")
    return 0


def row(landscape: Landscape) -> str:
    passed = [landscape.us[i] for i, status in enumerate(landscape.status) if status == PASSED]
    if not passed:
        return f"{landscape.name:22} nothing passed"
    default = landscape.speedup(landscape.index(landscape.default))
    best, worst = landscape.eager_us / min(passed), landscape.eager_us / max(passed)
    programs = f"{landscape.measured:4} of {landscape.distinct:4} programs  eager {landscape.eager_us:9.1f} us"
    speeds = f"compiler {default:5.2f}x  best {best:5.2f}x  worst {worst:5.2f}x"
    return f"{landscape.name:22} {programs}  {speeds}  {landscape.describe(landscape.point(landscape.best))}"


if __name__ == "__main__":
    sys.exit(main())
