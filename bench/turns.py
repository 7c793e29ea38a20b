"""Summarises how verifiers that share a device used it, from the logs that they write if STITCH_TURNS=FOLDER is set (`verifier/judge/turns.py`).

    STITCH_TURNS=/tmp/turns OUT=/tmp/out bench/sitting.sh sweep
    python bench/turns.py /tmp/turns [--out FILE.json]

For each device, it reports the fractions of the time from the first turn to the last in which a judge measured, in which a judge had the turn and
waited for the others to release the device (`closing`) or for the device to become idle (`resting`), and in which no judge wanted to measure. It then
lists the parts of turns with many calls, the overhead of a call beyond its own time, the requests that had been in flight longest when it became
another judge's turn, and those that took longest overall.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

SHOWN = 12


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Returns all log lines, grouped by device."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_text().splitlines()
        found[path.stem.rpartition("-")[0]] += [json.loads(line) for line in lines if line.endswith("}")]
    return found


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    turns = sorted((line for line in lines if line["event"] == "measured"), key=lambda line: line["turn"])
    if not turns:
        return {"turns": 0}
    whole = turns[-1]["at"] - turns[0]["turn"]
    parts = {
        "closing": sum(t["floor"] - t["turn"] for t in turns),
        "resting": sum(t["begun"] - t["floor"] for t in turns),
        "measuring": sum(t["at"] - t["begun"] for t in turns),
    }
    parts["free"] = whole - sum(parts.values())
    tournaments = [t for t in turns if "timed" in t]
    within = {
        "warm-up": [t["warm"] - t["begun"] for t in tournaments],
        "round trips": [t["ready"] - t["warm"] for t in tournaments],
        "blocks": [t["timed"] - t["ready"] for t in tournaments],
        "end": [t["at"] - t["timed"] for t in tournaments],
    }
    calls = [(t["timed"] - t["ready"]) / (2 * t["blocks"] * t["sides"]) - t["ms"] / t["sides"] / 1e3 for t in tournaments if t["blocks"]]
    slow: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        for request in line["requests"] if line["event"] == "closed" else ():
            slow[request].append(line["still"] - line["seen"])
    asked: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if line["event"] == "answered":
            asked[line["request"]].append(line["at"] - line["begun"])
    return {
        "turns": len(turns),
        "seconds": round(whole, 1),
        "shares": {name: round(value / whole, 3) for name, value in parts.items()},
        "seconds of a turn": {name: round(statistics.mean(values), 3) for name, values in within.items() if values},
        "ms of a call beside its own time": round(1e3 * statistics.median(calls), 2) if calls else None,
        "seconds until a judge had come to a stop": [
            round(v, 2) for v in sorted(x["still"] - x["seen"] for x in lines if x["event"] == "closed")[-8:]
        ],
        "what was under way then": dearest(slow),
        "requests, seconds and how many": dearest(asked),
    }


def dearest(found: dict[str, list[float]]) -> dict[str, list[float]]:
    """Returns the sum and the count of the entries with the largest sums."""
    return {name: [round(sum(values), 2), len(values)] for name, values in sorted(found.items(), key=lambda entry: -sum(entry[1]))[:SHOWN]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = {device: summary(lines) for device, lines in read(arguments.folder).items()}
    if not found:
        print(f"turns: {arguments.folder} has no log; set STITCH_TURNS to a folder where the verifiers are started", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
