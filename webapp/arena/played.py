"""Results of workflows on measured landscapes, shipped with this installation (bench/results/arena-landscapes*.json)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


@dataclass(frozen=True)
class Played:
    device: str
    tasks: int
    programs: int
    seeds: int
    quality: str
    budget: str
    rows: list[dict[str, Any]]
    why: str


@cache
def played_results() -> list[Played]:
    """Returns results on measured tables only, skipping unreadable files."""
    found = []
    for path in sorted(RESULTS.glob("arena-landscapes*.json")):
        try:
            for content in json.loads(path.read_text())["races"]:
                if content["table"]["kind"] == "measured":
                    found.append(_played(content))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _played(content: dict[str, Any]) -> Played:
    table = content["table"]
    rows = [
        {
            "workflow": score["workflow"],
            "regret": 100 * content["figures"][score["workflow"]]["final_regret"],
            "near": 100 * content["figures"][score["workflow"]]["near_best"]["share"],
            "speedup": {"ratio": score["geometric_mean"], "low": score["low"], "high": score["high"]},
            "calls": score["calls"],
            "programs": score["programs"],
            "dollars": score["dollars"],
        }
        for score in content["scores"]
    ]
    budget = ", ".join(f"{value:g} {unit}" for unit, value in content["budget"].items() if value is not None)
    name = table["device"].get("device_name", "")
    return Played(name, len(table["tasks"]), table["programs"], content["seeds"], content["quality"]["name"], budget, rows, content["why"])
