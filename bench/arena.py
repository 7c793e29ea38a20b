"""Races all workflows on a measured table: three quality levels of the simulated model, two budgets, a thousand seeds.

    python bench/arena.py --workers 16 --keep DIR                      bench/results/arena-landscapes.json and .md; again: it continues
    python bench/arena.py --table FILE --seeds 1-50 --qualities middling --budgets calls=12,candidates=12 --keep DIR --results DIR

Each race is equivalent to `python -m agents arena --suite landscape:FILE`; this script collects the races and writes the result after each one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from agents.arena import report  # noqa: E402
from agents.arena.cli import budget_from, chosen, progress, seeds_from  # noqa: E402
from agents.arena.landscape import LandscapeError, load  # noqa: E402
from agents.arena.model import QUALITIES  # noqa: E402
from agents.arena.plays import Kept  # noqa: E402
from agents.arena.tally import tallied  # noqa: E402
from agents.arguments import Unusable  # noqa: E402
from agents.choices.workflows import SEARCHES  # noqa: E402

BUDGETS = "calls=12,candidates=12;calls=40,candidates=40"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=ROOT / "bench" / "results" / "landscapes-h200.json")
    parser.add_argument("--workflows", default=",".join(SEARCHES))
    parser.add_argument("--qualities", default=",".join(QUALITIES))
    parser.add_argument("--budgets", default=BUDGETS, help="one after the other, with ; between them")
    parser.add_argument("--seeds", default="1-1000")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR", help="the plays (an interrupted race continues)")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--name", default="arena-landscapes", help="of the results of a measured table, for a race beside the published one")
    arguments = parser.parse_args()
    try:
        return races(arguments)
    except (Unusable, LandscapeError) as error:
        print(f"arena: {error}", file=sys.stderr)
        return 2


def races(arguments: argparse.Namespace) -> int:
    path = arguments.table if arguments.table.exists() else arguments.table.with_name(arguments.table.name + ".gz")
    table = load(path)
    table.landscapes = [landscape for landscape in table.landscapes if 0 in landscape.status]
    workflows, seeds = chosen(arguments.workflows), seeds_from(arguments.seeds)
    contents, texts = [], []
    for budget_text in arguments.budgets.split(";"):
        budget = budget_from(budget_text)
        limits = {unit: value for unit, value in budget.model_dump().items() if value is not None}
        for name in arguments.qualities.split(","):
            if name not in QUALITIES:
                raise Unusable(f"there is no quality {name!r}: {', '.join(QUALITIES)}")
            print(f"{name}, {budget_text}", file=sys.stderr, flush=True)
            begun = time.monotonic()
            kept = Kept(arguments.keep / f"{name}-{budget_text.replace(',', '-').replace('=', '')}")
            batches = kept.batches(table, workflows, seeds, QUALITIES[name], budget, arguments.workers)
            total = len(workflows) * len(table.landscapes) * len(seeds)
            tallies = tallied(progress(batches, total), budget.calls or 48, budget.candidates or 48)
            content, text = report.of_plays(table, path.name, tallies, QUALITIES[name], limits, seeds, time.monotonic() - begun)
            contents.append(content)
            texts.append(text)
            write(arguments.results, arguments.name if table.kind == "measured" else f"arena-{table.kind}", contents, texts)
    print(texts[-1])
    return 0


def write(folder: Path, stem: str, contents: list[dict], texts: list[str]) -> None:
    """Writes the results. If the table is synthetic, `stem` says so, whatever name was requested."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.json").write_text(json.dumps({"races": contents}, indent=1) + "\n")
    (folder / f"{stem}.md").write_text("\n\n".join(texts))


if __name__ == "__main__":
    sys.exit(main())
