"""Compares coordinate descent with exhaustive search on measured landscapes.

Reports the fraction of the best speed that descent reaches, and the fraction of the measurements that it needs.

    python bench/descend.py                                  the measured tables in bench/results, all kernels, seeds 1 to 5
    python bench/descend.py --table FILE --seeds 1-20
    python bench/descend.py --synthetic --results /tmp/x.json   tries it on synthetic landscapes; the result says so

There are two questions for each kernel. *workflow*: `descend` as a user runs it, from the task, over structures and numbers, with a budget of at most
a third of the programs that exhaustive search measures. *numbers*: only the descent, over the numbers of the best structure, starting from the
compiler's own numbers. Every table look-up has the noise of a verification in the quick tier; the reported time is the table's own value for the
chosen program.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
import sys
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agents.arena.landscape import STATUSES, Landscape, LandscapeError, Table, load, replaced  # noqa: E402
from agents.arena.model import QUALITIES  # noqa: E402
from agents.arena.played_verifier import NOISE  # noqa: E402
from agents.arena.race import played  # noqa: E402
from agents.arena.synthetic import synthetic  # noqa: E402
from agents.roles.situation import Knob  # noqa: E402
from agents.settings import Budget  # noqa: E402
from agents.workflows.descending import SHARE, descend  # noqa: E402

REACHED = 0.95
RESULTS = ROOT / "bench" / "results"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, action="append", help="a table of bench/landscapes.py (default: those in bench/results)")
    parser.add_argument("--synthetic", action="store_true", help="made-up landscapes instead; never a result")
    parser.add_argument("--seeds", default="1-5", metavar="A-B")
    parser.add_argument("--results", type=Path, default=RESULTS / "descend.json")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    paths = arguments.table or sorted(RESULTS.glob("landscapes-*.json*"))
    try:
        tables = [synthetic(20)] if arguments.synthetic else [load(path) for path in paths]
    except LandscapeError as error:
        print(f"descend: {error}", file=sys.stderr)
        return 2
    if not tables:
        print("descend: there is no measured table in bench/results; bench/landscapes.py makes one, --synthetic tries it out", file=sys.stderr)
        return 2
    result = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python bench/descend.py " + " ".join(sys.argv[1:]),
        "seeds": list(seeds),
        "noise": NOISE,
        "tables": [],
    }
    for table in tables:
        result["tables"].append(against_exhaustive(table, seeds))
        arguments.results.write_text(json.dumps(result, indent=1) + "\n")  # written after each table, so an interrupted series keeps its results
    print(f"written to {arguments.results}")
    return 0


def against_exhaustive(table: Table, seeds: range) -> dict[str, Any]:
    rows = []
    for landscape in table.landscapes:
        if all(status != 0 for status in landscape.status):
            continue
        row = {"kernel": landscape.name, "programs": landscape.measured, "best_speedup": round(landscape.eager_us / landscape.best_us, 3)}
        row["workflow"] = summed([asyncio.run(whole(landscape, seed)) for seed in seeds], landscape.measured)
        grid = number_grid(landscape)
        if grid is not None:
            knobs, table_of, measured = grid
            row["numbers"] = summed([asyncio.run(only_numbers(knobs, table_of, seed)) for seed in seeds], measured)
        rows.append(row)
        print(f"{landscape.name:>28}  " + "  ".join(words(name, row[name]) for name in ("workflow", "numbers") if name in row), flush=True)
    summary = {name: overall([row[name] for row in rows if name in row]) for name in ("workflow", "numbers")}
    for name, found in summary.items():
        print(f"{name}: {json.dumps(found)}")
    return {"kind": table.kind, "device": table.device.get("device_name"), "kernels": rows, "summary": summary}


async def whole(landscape: Landscape, seed: int) -> tuple[float, int]:
    """Returns (share of the best speed reached, programs measured) of the whole workflow."""
    budget = Budget(candidates=max(1, landscape.measured // SHARE), verifier_seconds=None, seconds=None)
    done = await played(landscape, "descend", seed, QUALITIES["middling"], budget)
    return done.found / done.best, done.programs


Grid = tuple[list[Knob], dict[tuple[int, ...], tuple[int, float]], int]


def number_grid(landscape: Landscape) -> Grid | None:
    """Returns the number grid of the best structure: its knobs, the program and speed of each combination (speed 0 means not correct), and the number
    of different programs. Returns None if there are fewer than 9 programs."""
    best = landscape.point(landscape.best)
    numeric = [(number, axis) for number, axis in enumerate(landscape.axes) if axis.numeric]
    knobs = [Knob(axis.label, axis.values, axis.values[axis.default]) for _, axis in numeric]
    table: dict[tuple[int, ...], tuple[int, float]] = {}
    for places in product(*(range(len(axis.values)) for _, axis in numeric)):
        point = best
        for (number, _), place in zip(numeric, places, strict=True):
            point = replaced(point, number, place)
        index = landscape.index(point)
        values = tuple(axis.values[place] for (_, axis), place in zip(numeric, places, strict=True))
        if STATUSES[landscape.status[index]] != "not_measured":
            table[values] = (landscape.program[index], landscape.speedup(index))
    programs = len({program for program, _ in table.values()})
    return (knobs, table, programs) if programs >= 3 * SHARE else None


async def only_numbers(knobs: list[Knob], table: dict[tuple[int, ...], tuple[int, float]], seed: int) -> tuple[float, int]:
    draw = random.Random(seed)
    seen: dict[int, float] = {}  # measured speed of each program, so that none is measured twice

    async def measure(values: dict[str, int]) -> float:
        program, speed = table.get(tuple(values[knob.name] for knob in knobs), (-1, 0.0))
        if program not in seen:
            seen[program] = speed * math.exp(draw.gauss(0, NOISE))
        return seen[program]

    start = {knob.name: knob.value for knob in knobs}
    limit = len({program for program, _ in table.values()}) // SHARE - 1  # the starting point also counts as a measurement
    found = await descend(knobs, await measure(start), measure, limit)
    reached = table.get(tuple(found[knob.name] for knob in knobs), (-1, 0.0))[1]
    return reached / max(speed for _, speed in table.values()), len(seen)


def summed(runs: list[tuple[float, int]], exhaustive: int) -> dict[str, Any]:
    shares, counts = [share for share, _ in runs], [count for _, count in runs]
    return {
        "exhaustive": exhaustive,
        "measured_mean": round(statistics.mean(counts), 1),
        "measured_most": max(counts),
        "share_of_measurements": round(max(counts) / exhaustive, 3),
        "reached_mean": round(statistics.mean(shares), 4),
        "reached_worst": round(min(shares), 4),
    }


def overall(rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {"kernels": 0}
    return {
        "kernels": len(rows),
        "kernels_at_95_percent_in_the_mean": sum(row["reached_mean"] >= REACHED for row in rows),
        "kernels_at_95_percent_with_every_seed": sum(row["reached_worst"] >= REACHED for row in rows),
        "reached_mean": round(statistics.mean(row["reached_mean"] for row in rows), 4),
        "reached_worst": min(row["reached_worst"] for row in rows),
        "share_of_measurements_mean": round(statistics.mean(row["measured_mean"] / row["exhaustive"] for row in rows), 3),
        "share_of_measurements_most": max(row["share_of_measurements"] for row in rows),
    }


def words(name: str, found: dict[str, Any]) -> str:
    return (
        f"{name} {100 * found['reached_mean']:.1f} % (worst {100 * found['reached_worst']:.1f} %)"
        f" for {found['measured_mean']:.0f}/{found['exhaustive']}"
    )


if __name__ == "__main__":
    sys.exit(main())
