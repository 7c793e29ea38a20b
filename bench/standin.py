"""Runs `stitch` on the examples with the stand-in model, some of whose replies are faulty, and compares it with a control that retries blindly.

    python bench/standin.py [--device cpu] [--seeds 1 2 3 4 5] [--rates 0 0.3 0.6] [--tasks softmax rms_norm] [--workers 8]
                            [--shard 0/1] [--limit-seconds S] [--out bench/results/arena-standin-cpu.json] [--keep DIR]

Each run has at most 12 model requests, including retries, and ends at the first program that is measured to be faster than eager, or when the
requests are spent. It succeeds if a program from the model passes confirmation in the full tier. The control always shows every role its first
prompt, so that no evidence reaches it. The result is written after each run, and an interrupted series resumes where it stopped. A run is repeated if
its last verdict only says that the machine was too busy, or if load from other work prevented it from ending. With --workers, each worker has its own
cores, verifier and stand-in.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import multiprocessing
import os
import queue
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from solve_all import machine_facts  # noqa: E402
from standin_run import RUN_LIMIT, Run, perform  # noqa: E402

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
FAILURES = {0.0: 0, 0.3: 1, 0.6: 2}  # maximum failures per suite, by rate
BLIND_BAR = 6  # maximum successes per suite at the highest rate


@dataclass(frozen=True)
class Series:
    """The parameters of the series that a worker needs."""

    device: str
    folder: str
    calls: int
    cores: list[list[int]]


def wanted(arguments: argparse.Namespace) -> Iterator[Run]:
    """Yields runs seed by seed, so that an interrupted series has complete suites. A task's runs with the same seed are consecutive, because the
    verifier keeps its reference."""
    highest = max(arguments.rates)
    for seed in arguments.seeds:
        for task in arguments.tasks:
            for rate, mode in [*((rate, "informed") for rate in arguments.rates), *([(highest, "blind")] if highest else [])]:
                yield Run(mode, rate, seed, task, EXAMPLES.index(task), len(EXAMPLES))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0, 0.3, 0.6])
    parser.add_argument("--tasks", nargs="+", choices=EXAMPLES, default=EXAMPLES, metavar="TASK", help="examples, without .py")
    parser.add_argument("--calls", type=int, default=12, help="model requests a run may make")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--shard", default="0/1", help="i/n: the ith of n parts, counted from 0")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="no further run is begun after this; those that are going end")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "arena-standin-cpu.json")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs' traces there")
    arguments = parser.parse_args()
    shard, shards = (int(part) for part in arguments.shard.split("/"))
    kept = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    rows, arguments.machines = kept.get("rows", []), kept.get("machines", [])
    rows = [row for row in rows if not row["too_busy"]]
    known = {(row["mode"], row["rate"], row["seed"], row["task"]) for row in rows}
    runs = [run for at, run in enumerate(wanted(arguments)) if at % shards == shard]
    left = [run for run in runs if (run.mode, run.rate, run.seed, run.task) not in known]
    with tempfile.TemporaryDirectory(prefix="standin-") as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        series = Series(arguments.device, str(folder.resolve()), arguments.calls, cores_of(arguments.workers))
        for row in rows_of(left, series, arguments.limit_seconds):
            rows.append(row)
            arguments.machines += [facts for facts in [machine_facts() | {"workers": arguments.workers}] if facts not in arguments.machines]
            save(arguments, rows)
            print(line(row), flush=True)
    content = save(arguments, rows)
    missing = len(runs) - sum(
        (run.mode, run.rate, run.seed, run.task) in {(r["mode"], r["rate"], r["seed"], r["task"]) for r in rows} for run in runs
    )
    print("\n".join(table(content)) + f"\n{missing} runs not begun")
    return 1 if content["missed"] or missing else 0


def cores_of(workers: int) -> list[list[int]]:
    """Returns the cores of each worker, chosen so that workers disturb each other's timings as little as possible."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // workers)
    return [cores[at * share : (at + 1) * share] or cores for at in range(workers)]


def rows_of(runs: list[Run], series: Series, limit: float) -> Iterator[dict[str, Any]]:
    """Yields rows as they are finished, using one process per set of cores."""
    context = multiprocessing.get_context("spawn")
    tasks, results = context.Queue(), context.Queue()
    for run in runs:
        tasks.put(run)
    deadline = time.time() + limit if limit != float("inf") else None
    workers = [context.Process(target=work, args=(at, series, tasks, results, deadline)) for at in range(len(series.cores))]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers) or not results.empty():
            with suppress(Exception):
                yield results.get(timeout=1)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
        for queue in (tasks, results):
            queue.cancel_join_thread()


def work(number: int, series: Series, tasks: Any, results: Any, deadline: float | None) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: if a series is killed, it leaves no process running
    os.sched_setaffinity(0, series.cores[number])
    # Verifiers that share a device pause for each other through lock files in this folder. These workers need not do so, because they have separate
    # processors.
    own = Path(series.folder) / f".tmp-{number}"
    own.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(own)
    with suppress(KeyboardInterrupt):
        asyncio.run(working(number, series, tasks, results, deadline))
    results.close()
    results.join_thread()


async def working(number: int, series: Series, tasks: Any, results: Any, deadline: float | None) -> None:
    from tests.standin.answers import Author
    from verifier.client import Verifier

    folder = Path(series.folder)
    data = folder / f".data-{number}"
    data.mkdir(exist_ok=True)
    client, author = Verifier(series.device, data), Author()
    try:
        while deadline is None or time.time() < deadline:
            try:
                run: Run = tasks.get(timeout=2)
            except queue.Empty:  # nothing is left to do
                return
            began = time.monotonic()
            row = asdict(run) | {"too_busy": False}
            try:
                row |= await asyncio.wait_for(perform(run, client, author, folder / run.name, series.device, series.calls), RUN_LIMIT)
            except Exception as error:  # a lost run is exactly what this benchmark looks for
                late = isinstance(error, TimeoutError) and time.monotonic() - began >= RUN_LIMIT
                # On a machine that is busy with other work, reaching the limit says nothing; otherwise, it means that the run never ends.
                busy = late and os.getloadavg()[0] > 2 * sum(map(len, series.cores))
                reason = f"not ended after {RUN_LIMIT:.0f} s" if late else f"{type(error).__name__}: {error}"[:2000]
                row |= {"success": False, "lost": not busy, "too_busy": busy, "outcome": None, "reason": reason, "cheats": []}
            results.put(row | {"run_seconds": round(time.monotonic() - began, 1), "load": round(os.getloadavg()[0], 1)})
    finally:
        await author.close()
        await client.close()


def save(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    content = {
        "what": "stitch with the stand-in model: success by share of faulty replies, seeds, and a control without evidence",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": arguments.device,
        "calls": arguments.calls,
        "machines": arguments.machines,  # over all sessions
        **summary(rows),
        "rows": sorted(rows, key=lambda row: (row["mode"], row["rate"], row["seed"], row["task"])),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    draft = arguments.out.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(arguments.out)
    return content


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarises by mode and rate: successes per seed, the worst and the mean, and, for complete suites, whether the target is met."""
    conditions, missed = [], []
    for mode, rate in sorted({(row["mode"], row["rate"]) for row in rows}, key=lambda pair: (pair[0] == "blind", pair[1])):
        of = [row for row in rows if (row["mode"], row["rate"]) == (mode, rate)]
        by_seed = {seed: [row["success"] for row in of if row["seed"] == seed] for seed in sorted({row["seed"] for row in of})}
        whole = {seed: sum(done) for seed, done in by_seed.items() if len(done) == len(EXAMPLES)}
        worst = (max if mode == "blind" else min)(whole.values(), default=None)
        bar = BLIND_BAR if mode == "blind" else len(EXAMPLES) - FAILURES[rate] if rate in FAILURES else None
        kept = worst is None or bar is None or (worst <= bar if mode == "blind" else worst >= bar)
        if not kept:
            missed.append(f"{mode} at {rate:g}: the worst seed has {worst} of {len(EXAMPLES)}, the bar is {bar}")
        conditions.append(
            {
                "mode": mode,
                "rate": rate,
                "runs": len(of),
                "successes_by_seed": {str(seed): f"{sum(done)}/{len(done)}" for seed, done in by_seed.items()},
                "mean": round(statistics.mean(whole.values()), 2) if whole else None,
                "worst": worst,
                "bar": bar,
                "calls_mean": round(statistics.mean(row.get("calls", 0) for row in of), 2),
                "faults": dict(total(row.get("faults", {}) for row in of)),
            }
        )
    tried = [cheat for row in rows for cheat in row["cheats"]]
    passed = [cheat for cheat in tried if cheat["status"] == "passed"]
    lost = [f"{row['task']}, {row['mode']} at {row['rate']:g}, seed {row['seed']}: {row['reason']}"[:300] for row in rows if row["lost"]]
    missed += [f"a cheat passed: {cheat['name']}" for cheat in passed] + [f"a run was lost: {text}" for text in lost]
    cheats = {"tried": len(tried), "different": len({cheat["name"] for cheat in tried}), "refused": len(tried) - len(passed)}
    return {"conditions": conditions, "cheats": cheats, "lost": lost, "missed": missed}


def total(counters: Iterator[dict[str, int]]) -> Counter[str]:
    added: Counter[str] = Counter()
    for counter in counters:
        added.update(counter)
    return added


def line(row: dict[str, Any]) -> str:
    mark = "LOST" if row["lost"] else "busy" if row["too_busy"] else "ok  " if row["success"] else "no  "
    spent = f"{row.get('calls', 0):.0f} calls, {row['run_seconds']:.0f} s"
    return f"{mark} {row['mode']:8s} {row['rate']:.1f} seed {row['seed']}  {row['task']:20s} {spent:16s}  {str(row['reason'])[:110]}"


def table(content: dict[str, Any]) -> list[str]:
    lines = [f"{'mode':9s} {'rate':>5s} {'runs':>5s} {'mean':>6s} {'worst':>6s} {'bar':>4s}  by seed"]
    for c in content["conditions"]:
        seeds = ", ".join(f"{seed}: {done}" for seed, done in c["successes_by_seed"].items())
        lines.append(f"{c['mode']:9s} {c['rate']:5.1f} {c['runs']:5d} {c['mean'] or 0:6.2f} {str(c['worst']):>6s} {str(c['bar']):>4s}  {seeds}")
    cheats = content["cheats"]
    lines.append(f"cheats: {cheats['refused']} of {cheats['tried']} refused ({cheats['different']} different); lost runs: {len(content['lost'])}")
    return lines + [f"MISSED: {text}" for text in content["missed"]]


if __name__ == "__main__":
    sys.exit(main())
