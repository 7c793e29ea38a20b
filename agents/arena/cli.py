"""`python -m agents arena`: compares workflows under the same budget, on real tasks or on a measured landscape."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agents.arguments import Subcommands, Unusable
from agents.choices.workflows import SEARCHES
from agents.settings import Budget

if TYPE_CHECKING:
    from agents.arena.scoring import FinishedRun

T = TypeVar("T")

LANDSCAPE = "landscape"
EPILOG = """exit codes:
  0    every run has ended    2    bad arguments, or a directory that cannot be used
  5    a run waits for a model: continue with --resume    130  interrupted: continue with --resume

A landscape is a table of measured programs (bench/landscapes.py); on it a model of a stated quality is played, and a run takes milliseconds:
  python -m agents arena --suite landscape:bench/results/landscapes-h200.json --workflows stitch,random --seeds 1-1000 --out DIR"""
# Imports within functions: --help works without the engine, and a play on landscapes needs no verifier.
UNITS = tuple(Budget.model_fields)


def add_commands(commands: Subcommands) -> None:
    arena = commands.add_parser(
        "arena",
        help="compare workflows on the same tasks, seeds and budget",
        description="Run every workflow on every task with every seed, and write arena.md, arena.json and the runs themselves into --out.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arena.add_argument("--suite", nargs="+", required=True, metavar="WHAT", help="tasks (files, folders), or landscape:FILE")
    arena.add_argument("--workflows", default=",".join(SEARCHES), metavar="A,B", help=f"of {', '.join(SEARCHES)} (default: all)")
    arena.add_argument("--llm", metavar="PROFILE", help='the model for all roles: a profile, "built-in" (default), or "landscape" on a landscape')
    arena.add_argument("--quality", default="middling", metavar="Q", help="quality of the simulated model: weak, middling (default), strong")
    arena.add_argument("--budget", default="calls=12,candidates=12", metavar="U=N,...", help=f"per run: {', '.join(UNITS)}; 0: no limit")
    arena.add_argument("--seeds", default="1-5", metavar="A-B", help="one, several, or a range (default: 1-5)")
    arena.add_argument("--device", default="cpu", help="cpu, or cuda:0 and so on (default: cpu)")
    arena.add_argument("--precision", default="fp32-strict", help="fp32-strict (default), tf32, bf16, fp16")
    arena.add_argument("--learn-from", type=Path, metavar="DIR", help="finished runs that may inspire; never those for a task in this suite")
    arena.add_argument("--workers", type=int, default=1, metavar="N", help="number of processes that play landscapes (default: 1)")
    arena.add_argument("--out", type=Path, required=True, metavar="DIR")
    arena.add_argument("--resume", action="store_true", help="continue the runs in --out")
    arena.add_argument("--data-dir", type=Path, metavar="DIR", help="the verifier's build cache")
    arena.add_argument("--json", action="store_true", help="print arena.json instead of the table")
    arena.set_defaults(act=act)


def act(args: argparse.Namespace) -> int:
    workflows = chosen(args.workflows)
    seeds, budget = seeds_from(args.seeds), budget_from(args.budget)
    tables = [name.partition(":")[2] for name in args.suite if name.startswith(f"{LANDSCAPE}:")]
    if tables and len(args.suite) > 1:
        raise Unusable("a suite is either tasks or one landscape:FILE, not both")
    if (tables and args.llm not in (None, LANDSCAPE)) or (not tables and args.llm == LANDSCAPE):
        raise Unusable("--llm landscape plays only tables, and tables need it: --suite landscape:FILE")
    if args.workers < 1:
        raise Unusable("--workers must be at least 1")
    if tables:
        return play(args, Path(tables[0]), workflows, seeds, budget)
    return asyncio.run(run(args, workflows, seeds, budget))


# real tasks


async def run(args: argparse.Namespace, workflows: list[str], seeds: list[int], budget: Budget) -> int:
    from agents.arena import report
    from agents.arena.runs import Contest, run_all, say_row
    from agents.arguments import check
    from agents.given import default_data_dir, find_tasks, open_verifier, read_source
    from agents.llm import open_models

    tasks = {name: read_source(path) for path, name in find_tasks([Path(name) for name in args.suite]).items()}
    if args.learn_from is not None and not args.learn_from.is_dir():
        raise Unusable(f"--learn-from {args.learn_from} is not a folder")
    try:
        contest = Contest(tasks, workflows, seeds, args.llm or "built-in", budget, args.device, args.precision)
        for workflow in workflows:
            check(contest.settings(workflow, seeds[0]))
    except ValueError as error:
        raise error if isinstance(error, Unusable) else Unusable(f"invalid settings: {error}") from None
    agree(args, contest.plain())
    begun = time.monotonic()
    client = open_verifier(args.device, args.data_dir or default_data_dir())
    try:
        environment = (await client.ready()).model_dump(mode="json")

        def on_row(rows: list[FinishedRun], waiting: list[str]) -> None:
            report.write(args.out, *report.of_runs(contest, rows, waiting, environment, time.monotonic() - begun))
            if rows:
                say_row(rows[-1])

        rows, waiting = await run_all(contest, args.out, client, open_models(os.environ), args.learn_from, on_row)
    except OSError as error:
        raise Unusable(str(error)) from None
    finally:
        await client.close()
    show(args)
    return 5 if waiting else 0


# landscapes


def play(args: argparse.Namespace, file: Path, workflows: list[str], seeds: list[int], budget: Budget) -> int:
    from agents.arena import report
    from agents.arena.landscape import LandscapeError, load
    from agents.arena.model import QUALITIES
    from agents.arena.plays import Kept
    from agents.arena.tally import tallied

    if args.quality not in QUALITIES:
        raise Unusable(f"there is no quality {args.quality!r}: {', '.join(QUALITIES)}")
    quality = QUALITIES[args.quality]
    try:
        table = load(file)
    except LandscapeError as error:
        raise Unusable(str(error)) from None
    table.landscapes = [landscape for landscape in table.landscapes if 0 in landscape.status]
    if not table.landscapes:
        raise Unusable(f"{file} has no program that passed: measure it first")
    limits = {unit: value for unit, value in budget.model_dump().items() if value is not None}
    tasks = {landscape.name: landscape.measured for landscape in table.landscapes}
    agree(args, {"landscape": tasks, "workflows": workflows, "seeds": seeds, "quality": args.quality, "budget": limits})
    begun = time.monotonic()
    kept = Kept(args.out / "plays")
    batches = kept.batches(table, workflows, seeds, quality, budget, args.workers)
    programs = budget.candidates or 48
    tallies = tallied(progress(batches, len(workflows) * len(table.landscapes) * len(seeds)), budget.calls or 2 * programs, programs)
    report.write(args.out, *report.of_plays(table, file.name, tallies, quality, limits, seeds, time.monotonic() - begun))
    show(args)
    return 0


def progress(batches: Iterator[list[T]], total: int) -> Iterator[list[T]]:
    done, said = 0, 0
    for batch in batches:
        yield batch
        done += len(batch)
        if done * 20 // total > said:
            said = done * 20 // total
            print(f"{done} of {total} plays", file=sys.stderr, flush=True)


# arguments


def chosen(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SEARCHES]
    if unknown or not names:
        raise Unusable(f"there is no workflow {', '.join(unknown) or '(none given)'}: {', '.join(SEARCHES)}")
    return list(dict.fromkeys(names))


def seeds_from(text: str) -> list[int]:
    """Parses seeds given as "3", "1,4" or "1-5"."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            seeds += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise Unusable(f"--seeds {text}: give numbers and ranges, such as 1-5 or 1,4") from None
    if not seeds:
        raise Unusable(f"--seeds {text}: the range is empty")
    return list(dict.fromkeys(seeds))


def budget_from(text: str) -> Budget:
    """Parses a budget such as "calls=12,dollars=0.5"; units that are left out have no limit."""
    limits: dict[str, float | None] = dict.fromkeys(UNITS)
    for part in filter(None, (part.strip() for part in text.split(","))):
        unit, _, value = part.partition("=")
        if unit not in UNITS:
            raise Unusable(f"--budget {part}: there is no unit {unit!r}; {', '.join(UNITS)}")
        try:
            limits[unit] = float(value) or None
        except ValueError:
            raise Unusable(f"--budget {part}: {value!r} is not a number") from None
    if not any(limits.values()):
        raise Unusable("--budget: without any limit the workflows cannot be compared")
    try:
        return Budget.model_validate(limits)
    except ValueError as error:
        raise Unusable(f"--budget {text}: {str(error).splitlines()[-2].strip() if error else ''}") from None


def agree(args: argparse.Namespace, contest: dict[str, Any]) -> None:
    """Checks the settings. A folder contains one contest, which can be resumed only with the same settings."""
    path = args.out / "contest.json"
    known = path.exists()
    if known and not args.resume:
        raise Unusable(f"{args.out} already holds an arena: continue it with --resume, or choose another --out")
    if known:
        before = json.loads(path.read_text())
        differ = [key for key in {**before, **contest} if before.get(key) != contest.get(key)]
        if differ:
            raise Unusable(f"{args.out} holds an arena with other {', '.join(differ)}: give the same, or choose another --out")
    args.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(contest, indent=1) + "\n")


def show(args: argparse.Namespace) -> None:
    from agents.arena.report import JSON, MARKDOWN

    print((args.out / (JSON if args.json else MARKDOWN)).read_text())


__all__: Sequence[str] = ("act", "add_commands")
