"""Verifies the corpus of cheating and honest programs: every form of every file, with results as JSON.

    python bench/corpus.py --device cpu|cuda:0 [--kind cheats|honest|all] [--only REGEX] [--forms all|short|"as is"] [--shard 0/4] [--needs-gpu]
                           [--limit-seconds S] [--resume] --out FILE.json

Cheats against which there is a runtime or design defence are tried in three forms: unchanged, with the static stage off, and with the static stage
off and with other names (`--static-off` skips the first form). The result is written after each file, so an interrupted run keeps its results;
`--resume` continues where it stopped. The exit status is 1 if a verdict differs from the one that the file's header requires.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.integrity.corpus import Desk, Outcome, outcome_row, read_corpus, summary  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kind", choices=["cheats", "honest", "all"], default="all")
    parser.add_argument("--only", default="", help="a regular expression for file names")
    parser.add_argument("--forms", choices=["all", "short", "as is"], default="all")
    parser.add_argument("--needs-gpu", action="store_true", help="only programs that have no twin on the CPU")
    parser.add_argument("--static-off", action="store_true", help="only the forms without the static stage")
    parser.add_argument("--shard", default="0/1", help="i/n: the ith of n parts, counted from 0")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="no further file is begun after this")
    parser.add_argument("--resume", action="store_true", help="keep the right verdicts of --out and go on")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    shard, shards = (int(part) for part in arguments.shard.split("/"))

    entries = [entry for entry in read_corpus(arguments.kind) if entry.runs_on(arguments.device) and re.search(arguments.only, entry.name)]
    entries = [entry for entry in entries if entry.device == "cuda" or not arguments.needs_gpu]
    size = -(-len(entries) // shards)
    entries = entries[shard * size : (shard + 1) * size]  # adjacent entries share a task
    wanted = []
    for entry in entries:
        forms = entry.short_forms if arguments.forms == "short" else ("as is",) if arguments.forms == "as is" else entry.forms
        wanted += [(entry, form) for form in forms if form != "as is" or not arguments.static_off]
    # Alternating between verifiers would keep two sets of processes in memory. Therefore, all files of one form come first, and only one verifier's
    # processes are active at a time.
    wanted.sort(key=lambda pair: pair[1] != "as is")

    rows: list[dict] = []
    if arguments.resume and arguments.out.exists():
        rows = [row for row in json.loads(arguments.out.read_text())["rows"] if row["ok"]]
    known = {(row["kind"], row["name"], row["form"]) for row in rows}
    begin = time.monotonic()
    left = 0
    with tempfile.TemporaryDirectory(prefix="corpus-", ignore_cleanup_errors=True) as folder:
        desk = Desk(arguments.device, Path(folder))
        try:
            for entry, form in wanted:
                if (entry.kind, entry.name, form) in known:
                    continue
                if time.monotonic() - begin > arguments.limit_seconds:
                    left += 1
                    continue
                outcome = desk.check(entry, form)
                rows.append(outcome_row(entry, outcome))
                save(arguments, rows, len(wanted))
                print(line(outcome), flush=True)
        finally:
            desk.close()
    save(arguments, rows, len(wanted))
    misses = [row for row in rows if not row["ok"]]
    print(f"\n{len(rows) - len(misses)} of {len(rows)} as demanded, {left} not begun, {time.monotonic() - begin:.0f} s")
    for row in misses:
        found = f"{row['status']} ({row['program_class'] or 'no class'}, speedup {row['speedup']})"
        print(f"  MISS {row['kind']}/{row['name']} [{row['form']}]: demanded {row['expected']}, got {found}: {row['message'][:200]}")
    return 1 if misses or left else 0


def line(outcome: Outcome) -> str:
    shown = outcome.program_class or "" if outcome.status == "passed" else outcome.message[:90]
    mark = "ok  " if outcome.ok else "MISS"
    return f"{mark} {outcome.seconds:6.1f} s  {outcome.kind}/{outcome.name} [{outcome.form}]  {outcome.status}  {shown}"


def save(arguments: argparse.Namespace, rows: list[dict], wanted: int) -> None:
    scratch = arguments.out.with_suffix(".part")
    scratch.write_text(json.dumps({"device": arguments.device, "wanted": wanted, **summary(rows)}, indent=1) + "\n")
    os.replace(scratch, arguments.out)


if __name__ == "__main__":
    sys.exit(main())
