"""Measures the seconds from a task to the first program with generated kernels that is known to beat eager, for randomly drawn tasks, one at a time.

    python bench/first_faster.py CHECKOUT --devices cuda:0,cuda:1 --out RESULT.json [--sets level1,level2,level3] [--limit-seconds 540] [--resume]
    python bench/first_faster.py --sets everyday --devices cuda:0,cuda:1 --out RESULT.json        (needs no CHECKOUT)

A verifier is kept warm, as on a serving host, but every task is new to it. A run of `agents solve`, with the compiler and without experience, is
followed until a verdict says that its program is faster, and is then cancelled. With `--winner fastest`, a program of any class counts. Tasks are
drawn, without those that have a flag in `--rows`, in an order that does not depend on the number drawn, so `--resume` enlarges the sample. With
several devices, a process for each takes every n-th of these tasks. For each task, RESULT contains the seconds to the first verdict and to the first
verdict of "faster" (null if the run or its time ended without one). It also contains their medians, in which a null counts as longer than all other
values. `course` says where the time goes: the second at which each of the verifier's jobs, and each stage of the first verification, was done.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agents import cli  # noqa: E402
from agents.events import Event  # noqa: E402
from agents.journal import FileJournal  # noqa: E402
from bench.sweep.device import SPARES, limits  # noqa: E402
from bench.sweep.rows import SOLVED  # noqa: E402
from bench.sweep.store import write  # noqa: E402
from bench.sweep.tasks import Item, NoSuchTasks, in_set, items, sets_of  # noqa: E402
from verifier.client import Verifier  # noqa: E402
from verifier.limits import Limits  # noqa: E402

LAST_SECONDS = 5.0  # seconds reserved for writing the result and closing
RESAMPLES = 10_000
OWN = "own-kernels"
Row = dict[str, Any]


def drawn(checkout: Path, sets: Sequence[str], rows: dict[str, Row], seed: int) -> list[Item]:
    """Returns the tasks of the sets, except for those that the sweep flagged, ordered by digest."""
    found = [item for item in items(sets, checkout) if not rows.get(item.key, {}).get("flags")]
    return sorted(found, key=lambda item: hashlib.sha256(f"{seed}/{item.key}".encode()).digest())


async def verdicts(folder: Path, run: asyncio.Task, course: dict[str, float], begun: float) -> AsyncIterator[Event]:
    """Yields the verdicts on the run's programs as they arrive, until the run ends. Records in `course` the time in seconds since `begun` at which
    each of the verifier's jobs and each stage of the first verification was first completed."""
    journal, seen, last = FileJournal(folder, owner=False), 0, False
    while not last:
        last = run.done()
        new = journal.events_after(seen)
        seen += len(new)
        for event in new:
            p, done = event.payload, event.kind == "verification.finished"
            if done or (event.kind == "verification.stage" and p.get("status") not in ("started", "progress")):
                name = str(p.get("job")) if done else f"verify: {p.get('stage')}"
                course.setdefault(name, round(datetime.fromisoformat(event.at).timestamp() - begun, 2))
            if done and p.get("job") == "verify":
                yield event
        await asyncio.sleep(0.05)


def counts(verdict: Mapping[str, Any], winner: str) -> bool:
    """Returns whether a verdict ends the wait, that is, whether the program is faster and of a class that may win."""
    return bool(verdict.get("faster")) and (winner == "fastest" or verdict.get("program_class") in SOLVED)


async def measured(item: Item, verifier: Verifier, task_seconds: float, winner: str = OWN) -> Row:
    course: dict[str, float] = {}
    row: Row = {"first_verdict_s": None, "first_faster_s": None, "programs": 0, "verdicts": [], "course": course}
    with tempfile.TemporaryDirectory(prefix="first-") as made:
        folder = Path(made) / "run"
        given = ["solve", str(item.path), "--out", str(folder), "--device", verifier.device, "--precision", item.precision, "--quiet"]
        given += ["--no-experience", "--profiles", "none", "--winner", winner]
        begun = time.monotonic()
        run = asyncio.create_task(cli.solve_one(cli.parser().parse_args(given), item.path, item.path.stem, folder, verifier))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(task_seconds):
                async for event in verdicts(folder, run, course, time.time() - (time.monotonic() - begun)):
                    p, seconds = event.payload, round(time.monotonic() - begun, 1)
                    row["programs"] += 1
                    row["first_verdict_s"] = row["first_verdict_s"] or seconds
                    row["verdicts"].append({name: p.get(name) for name in ("status", "tier", "program_class", "faster", "speedup")} | {"s": seconds})
                    if counts(p, winner):
                        row["first_faster_s"] = seconds
                        break
        row["ended"] = run.done() and row["first_faster_s"] is None
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await run
    return row


def summary(rows: dict[str, Row], sets: Sequence[str]) -> dict[str, Any]:
    """Returns medians over all tasks and for each set, with 95 % bootstrap intervals over the drawn tasks."""
    of_set = {name: [row for key, row in rows.items() if in_set(name, key)] for name in sets}
    return {name: middle(some) for name, some in {"all": list(rows.values()), **of_set}.items() if some}


def middle(rows: Sequence[Row]) -> dict[str, Any]:
    seconds = [math.inf if row["first_faster_s"] is None else row["first_faster_s"] for row in rows]
    generator = random.Random(0)
    again = sorted(statistics.median(generator.choices(seconds, k=len(seconds))) for _ in range(RESAMPLES))
    low, high = again[int(0.025 * RESAMPLES)], again[int(0.975 * RESAMPLES)]
    finite = [None if math.isinf(value) else round(value, 1) for value in (statistics.median(seconds), low, high)]
    return {"tasks": len(rows), "without": seconds.count(math.inf), "median_s": finite[0], "low_s": finite[1], "high_s": finite[2]}


async def sample(arguments: argparse.Namespace, result: dict[str, Any], drawn_items: Sequence[Item]) -> None:
    end = time.monotonic() + arguments.limit_seconds - LAST_SECONDS
    waiting = shared_out([item for item in drawn_items if item.key not in result["rows"]], arguments.shard)
    spares = SPARES[arguments.device.partition(":")[0]]
    usual = Limits()
    times = argparse.Namespace(timing_seconds=usual.full_timing, autotune_seconds=usual.autotune)
    verifier = Verifier(arguments.device, arguments.data_dir, limits(times), spares=spares)
    try:
        result["device"] = (await verifier.ready()).model_dump(mode="json")
        for item in waiting:
            left = end - time.monotonic()
            if left < arguments.begin_seconds:
                break
            row = await measured(item, verifier, min(arguments.task_seconds, left), arguments.winner)
            if row["first_faster_s"] is None and not row["ended"] and left < arguments.task_seconds:
                break  # cut off by the end of the session, not by its own limit
            result["rows"][item.key] = row
            result["summary"] = summary(result["rows"], result["sets"])
            write(arguments.out, (json.dumps(result, indent=1) + "\n").encode())
            print(f"{item.key}: {row['first_faster_s']} s, {row['programs']} programs; {result['summary']['all']}", flush=True)
    finally:
        await verifier.close()


def shared_out(waiting: Sequence[Item], shard: str) -> Sequence[Item]:
    """Returns every n-th task, starting from the i-th, where `shard` is "i/n"."""
    at, _, of = shard.partition("/")
    return waiting[int(at) :: int(of)]


def gathered(result: dict[str, Any], parts: Sequence[Path]) -> dict[str, Any]:
    """Returns the result with the rows of the parts that a process for each device wrote."""
    found = [json.loads(path.read_text()) for path in parts if path.exists()]
    rows = dict(result["rows"])
    for part in found:
        rows |= part["rows"]
    facts = {"device": next((part["device"] for part in found if part.get("device")), result.get("device"))}
    return {**result, **facts, "rows": rows, "summary": summary(rows, result["sets"])}


def without(given: Sequence[str], option: str) -> list[str]:
    """Returns command-line arguments without an option and its value."""
    kept, skip = [], False
    for word in given:
        if not skip and word != option and not word.startswith(f"{option}="):
            kept.append(word)
        skip = word == option
    return kept


def beside(arguments: argparse.Namespace, result: dict[str, Any], devices: Sequence[str], given: Sequence[str]) -> int:
    """Runs this benchmark once for each device, concurrently, and collects the rows as they arrive. Returns the first non-zero exit status."""
    parts = [arguments.out.with_name(f"{arguments.out.stem}-part-{number}.json") for number in range(len(devices))]
    processes = []
    for number, (device, part) in enumerate(zip(devices, parts, strict=True)):
        write(part, json.dumps(result).encode())
        own = ["--device", device, "--shard", f"{number}/{len(devices)}", "--out", str(part), "--resume"]
        own += ["--data-dir", str(arguments.data_dir / f"{number}-{device.replace(':', '-')}")]
        processes.append(subprocess.Popen([sys.executable, __file__, *given, *own]))
    try:
        while True:
            running = any(process.poll() is None for process in processes)
            write(arguments.out, (json.dumps(gathered(result, parts), indent=1) + "\n").encode())
            if not running:
                break
            time.sleep(1.0)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    for part in parts:
        part.unlink(missing_ok=True)
    print(json.dumps(gathered(json.loads(arguments.out.read_text()), [])["summary"], indent=1))
    return next((process.returncode for process in processes if process.returncode), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, nargs="?", metavar="CHECKOUT", help="of KernelBench; not needed for the sets everyday and examples")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--devices", help="comma-separated: side by side, one task at a time on each (default: --device alone)")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="only every N-th task, from the I-th")
    parser.add_argument("--out", type=Path, required=True, metavar="RESULT")
    parser.add_argument("--sets", default="level1,level2,level3", help="as bench.sweep's")
    parser.add_argument("--rows", type=Path, default=ROOT / "bench" / "results" / "kernelbench-h200.json", help="whose flagged tasks are left out")
    parser.add_argument("--winner", default=OWN, choices=["fastest", OWN], help=f"which programs count as faster (default: {OWN})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="tasks at the most (default: as many as the time allows)")
    parser.add_argument("--task-seconds", type=float, default=300.0, help="after which a task counts as one without (default: 300)")
    parser.add_argument("--limit-seconds", type=float, default=540.0, help="of this sitting")
    parser.add_argument("--begin-seconds", type=float, default=60.0, help="that must be left for another task (default: 60)")
    parser.add_argument("--data-dir", type=Path, default=ROOT / ".data" / "first-faster", help="build cache")
    parser.add_argument("--resume", action="store_true", help="go on with the tasks that RESULT has")
    arguments = parser.parse_args()
    try:
        sets = sets_of(arguments.sets)
        result: dict[str, Any] = {"seed": arguments.seed, "sets": sets, "winner": arguments.winner, "rows": {}}
        if arguments.resume and arguments.out.exists():
            result = json.loads(arguments.out.read_text())
            if (result["seed"], result["sets"], result.get("winner", OWN)) != (arguments.seed, sets, arguments.winner):
                made = f"{', '.join(result['sets'])} by seed {result['seed']} with --winner {result.get('winner', OWN)}"
                parser.error(f"{arguments.out} is a sample of {made}: go on with these, or write to another file")
        devices = arguments.devices.split(",") if arguments.devices else []
        waiting = drawn(arguments.checkout, sets, json.loads(arguments.rows.read_text())["rows"], arguments.seed)
        if len(devices) > 1:
            return beside(arguments, result, devices, without(sys.argv[1:], "--devices"))
        arguments.device = devices[0] if devices else arguments.device
        asyncio.run(sample(arguments, result, waiting[: arguments.count]))
    except (NoSuchTasks, OSError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
