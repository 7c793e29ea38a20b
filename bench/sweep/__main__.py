"""Solves KernelBench with the built-in compiler and no language model, on several GPUs and in as many sessions as needed.

    python -m bench.sweep run CHECKOUT --devices cuda:0,cuda:1 --keep KEPT [--start EARLIER] [--sets ten,level3] [--limit-seconds 520]
    python -m bench.sweep merge KEPT OTHER --out MERGED/kernelbench.json
    python -m bench.sweep tables KEPT/kernelbench.json          (also writes bench/results/kernelbench-<device>.json, .md)

`run` continues from the results in KEPT. Existing rows are unchanged, except those named by --again. An interrupted run resumes where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.sweep import tables
from bench.sweep.accepting import accept
from bench.sweep.rows import dumped
from bench.sweep.running import FEW_SPARES, LARGE, LAST_SECONDS, MANY, WORTH_BEGINNING, Sitting, memory_of
from bench.sweep.store import PROGRAMS, ROWS, Store, gathered, merged, packed, write
from bench.sweep.tasks import ROOT, SETS, USUAL, Item, NoSuchTasks, items, needs, sets_of

LONG = 300.0  # seconds
SHARED = 0.96  # usable fraction of device memory in terms of the runs' peaks, which do not coincide: of 120 GiB assigned, 82 GiB were used on average
ENOUGH = 1.2  # factor applied to the time after which a run was interrupted; a session of that length may complete the run
UNLUCKY = ("inconclusive", "infrastructure_error", "unconfirmed")  # reasons unrelated to the compiler


def main(given: Sequence[str] | None = None) -> int:
    """Runs the command. `given` replaces the command-line arguments."""
    commands = parser()
    arguments, arguments.rest = commands.parse_known_args(given)
    if arguments.rest and arguments.act is not sitting:
        commands.error(f"unknown: {' '.join(arguments.rest)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an external limit ends a session as Ctrl-C does, and everything is kept
    try:
        return arguments.act(arguments)
    except (NoSuchTasks, FileExistsError) as error:
        print(f"bench.sweep: {error}", file=sys.stderr)
        return 2
    except FileNotFoundError as error:
        print(f"bench.sweep: {error.filename} is not there", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m bench.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True)
    run = commands.add_parser(
        "run", help="a sitting", epilog="Further options go to `python -m agents solve` (--budget-verifier-seconds, --workflow, ...)."
    )
    run.add_argument("checkout", type=Path, nargs="?", metavar="CHECKOUT", help="of KernelBench; not needed for the sets everyday and examples")
    run.add_argument("--sets", default=",".join(USUAL), help=f"of {', '.join(SETS)} (default: {', '.join(USUAL)})")
    run.add_argument("--only", action="append", default=[], metavar="PART", help="only tasks with this in their name")
    run.add_argument("--devices", default="cuda:0", help="comma-separated; each worker has a verifier of its own")
    run.add_argument("--keep", type=Path, required=True, metavar="KEPT", help="what is written: rows, programs, unfinished runs")
    run.add_argument("--start", type=Path, metavar="EARLIER", help="an earlier KEPT, or its JSON, to go on from (default: KEPT)")
    run.add_argument(
        "--again",
        default="",
        help='rows to make anew where the code has changed: "failed", "missing" (a baseline), "behind" (the best), "flagged", "older" (all); '
        "or parts of names",
    )
    run.add_argument("--shuffle", action="store_true", help="in an order that looks random and stays, not that of the sets: a fair sample early")
    run.add_argument("--limit-seconds", type=float, help="of the whole sitting; what is not done by then waits for the next")
    run.add_argument(
        "--begin-seconds",
        type=float,
        default=WORTH_BEGINNING,
        metavar="S",
        help="that must be left for another task to be begun: with some 150 in the last sitting for a while the runs under way finish sooner",
    )
    run.add_argument("--task-seconds", type=float, default=900, help="after which a task is given up as failed")
    run.add_argument("--budget-candidates", default="6", metavar="N")
    run.add_argument("--budget-seconds", default="600", metavar="S", help="of a run's search; confirming the winner is kept back from it")
    run.add_argument("--timing-seconds", metavar="S", help="of tier full's timed calls (default: the verifier's); a row says it")
    run.add_argument(
        "--autotune-seconds",
        metavar="S",
        help="that max-autotune may take, before reduce-overhead is measured in its place (default: 180; 0: at once)",
    )
    run.add_argument(
        "--no-search",
        default="",
        metavar="SETS",
        help="as with --autotune-seconds 0 for these of the sets, by workers of their own, as many more as --share says",
    )
    run.add_argument(
        "--winner", default="own-kernels", choices=["fastest", "own-kernels"], help="among the programs that passed (default: own-kernels)"
    )
    run.add_argument("--profiles", default="none", choices=["all", "winner", "none"], help="by Nsight Systems (default: none, 12 s each)")
    warm = "begin with the numbers and records that earlier sittings left in KEPT, and leave some: for rows made --again"
    run.add_argument("--warm", action="store_true", help=f"{warm}; a row says it. Without: every task as if it were the first on this device")
    run.add_argument("--share", type=int, default=1, metavar="N", help="workers a device; one measures while the others stand still (default: 1)")
    run.add_argument("--largest", type=float, metavar="GIB", help="tasks that need more of a device than this are left for another sitting")
    run.add_argument(
        "--spares",
        type=int,
        help=f"processes that each verifier keeps ready (default: 9, on the CPU 3; {FEW_SPARES} with more than {MANY} workers a device)",
    )
    run.add_argument("--data-dir", type=Path, default=ROOT / ".data" / "sweep", help="build caches, a folder a device")
    run.add_argument("--traces", action="store_true", help="leave the runs in work/runs of --data-dir")
    run.add_argument("--accept", action="store_true", help="once all rows are there: KernelBench's own evaluation of the ten's programs and 20 more")
    run.add_argument("--accept-share", type=int, default=1, metavar="N", help="processes a device for that: with more than one, no times are kept")
    run.set_defaults(act=sitting)
    merge = commands.add_parser("merge", help="several sittings as one")
    merge.add_argument("parts", type=Path, nargs="+", metavar="PART", help="what a sitting kept: its folder, or its JSON beside its programs")
    merge.add_argument("--out", type=Path, required=True, metavar="MERGED", help="JSON; the rows' programs lie beside it")
    merge.set_defaults(act=merge_parts)
    shown = commands.add_parser("tables", help="results and tables")
    shown.add_argument("rows", type=Path, metavar="KEPT/kernelbench.json")
    shown.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    shown.add_argument("--page", type=Path, default=ROOT / "bench" / "README.md")
    shown.set_defaults(act=publish)
    return top


def sitting(arguments: argparse.Namespace) -> int:
    begun = time.monotonic()
    sets = sets_of(arguments.sets)
    wanted = items(sets, arguments.checkout, arguments.only)
    wanted = [item for item in wanted if arguments.largest is None or needs(item) <= arguments.largest * 2**30]
    store = Store(arguments.keep, arguments.start, arguments.data_dir / "work")
    devices = arguments.devices.split(",")
    given = ["--budget-candidates", arguments.budget_candidates, "--budget-seconds", arguments.budget_seconds]
    given += ["--profiles", arguments.profiles, "--winner", arguments.winner, *arguments.rest]
    given += ["--timing-seconds", arguments.timing_seconds] if arguments.timing_seconds else []
    given += ["--autotune-seconds", arguments.autotune_seconds] if arguments.autotune_seconds else []
    no_search = sets_of(arguments.no_search)
    options = [*given, *(["--no-search", ",".join(no_search)] if no_search else []), *(["--warm"] if arguments.warm else [])]
    experience = ["--experience", str(store.experience.resolve())] if arguments.warm else ["--no-experience"]
    store.note(command=f"make bench-kernelbench SETS={','.join(sets)} OPTIONS='{' '.join(options)}'")
    waiting = to_do(wanted, store, [part for part in arguments.again.split(",") if part], arguments.shuffle, arguments.limit_seconds)
    print(f"{len(wanted)} tasks, {len(wanted) - len(waiting)} rows there already, {len(devices)} device(s), code {store.code}", flush=True)
    limit = arguments.limit_seconds
    series = Sitting(store, devices, arguments.data_dir, [*given, *experience], limit, arguments.task_seconds, begun=begun)
    series.spares, series.share, series.keep_traces = arguments.spares, arguments.share, arguments.traces
    series.begin_seconds, series.no_search = arguments.begin_seconds, no_search
    given_away = [SHARED * total for device in devices if (total := memory_of(device, "total"))]
    series.memory = min([series.memory, *given_away])
    series.run(waiting)
    left = [item.key for item in waiting if item.key not in series.finished]
    if arguments.accept and not left and series.left() > 2 * LAST_SECONDS and arguments.checkout is not None:
        unasked = accept(store, arguments.checkout, devices, None if limit is None else series.left() - LAST_SECONDS, arguments.accept_share)
        left += [f"KernelBench's own evaluation of {key}" for key in unasked]
    print(tables.page(store.content))
    print(f"{len(left)} left: {', '.join(left[:5])}{', ...' if len(left) > 5 else ''}" if left else "nothing is left")
    return 0


def to_do(wanted: list[Item], store: Store, again: list[str], shuffle: bool = False, limit: float | None = None) -> list[Item]:
    """Returns the tasks that have no row or are named by `again`.

    Interrupted runs come first. The others follow in the order of the sets or, if shuffled, in the order of the digests of their names. Runs that
    were interrupted after `LONG` seconds come before all others if `limit` seconds may be enough for them; otherwise they come last, because they
    occupy memory for most of the session. Tasks that need most of a device's memory come before everything else, largest first, and small ones fill
    the remaining memory."""
    waiting = [item for item in wanted if item.key not in store.rows or any(anew(part, item.key, store) for part in again)]
    if shuffle:
        waiting.sort(key=lambda item: hashlib.sha256(item.key.encode()).digest())
    unfinished = store.content["unfinished"]
    spent = store.content.get("given_up", {}) | {key: entry["seconds"] for key, entry in unfinished.items()}

    def place(item: Item) -> tuple[int, float]:
        before = spent.get(item.key, 0.0)
        if before >= LONG:
            return (-1 if limit is None or limit >= ENOUGH * before else 2), 0.0
        if needs(item) > LARGE:
            return -2, -needs(item)
        return int(item.key not in unfinished), 0.0

    return sorted(waiting, key=place)


def anew(part: str, key: str, store: Store) -> bool:
    """Returns whether to redo an existing row. With unchanged code, a row is redone only if its task is named or if it is inconclusive."""
    row = store.rows[key]
    older = row.get("code") != store.code
    if part == "failed":
        return not row["solved"] and (older or row["status"] in UNLUCKY)
    if part == "missing":
        return older and (not row["solved"] or bool(row.get("missing")))
    if part == "behind":
        return older and (not row["solved"] or row["best"]["ratio"] < 1)
    if part == "flagged":
        return older and bool(row.get("flags"))
    return older if part == "older" else part in key


def merge_parts(arguments: argparse.Namespace) -> int:
    parts = [path / ROWS if path.is_dir() else path for path in arguments.parts]
    content = merged(json.loads(path.read_text()) for path in parts)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(dumped(content))
    programs = gathered(content["rows"], [path.with_name(PROGRAMS) for path in parts])
    write(arguments.out.with_name(PROGRAMS), packed(programs))
    print(f"{len(content['rows'])} rows, {len(programs)} programs")
    return 0


def publish(arguments: argparse.Namespace) -> int:
    path = arguments.rows / ROWS if arguments.rows.is_dir() else arguments.rows
    content = json.loads(path.read_text())
    device = (content.get("device") or {}).get("device_model") or "unknown"
    arguments.results.mkdir(parents=True, exist_ok=True)
    target = arguments.results / f"kernelbench-{device}.json"
    if path.resolve() != target.resolve():
        shutil.copyfile(path, target)
    target.with_suffix(".md").write_text(tables.full_table(content))
    tables.rewrite(arguments.page, tables.page(content))
    print(tables.page(content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
