"""Records the call graph of each workflow, from the trace of a run with roles and a verifier that always give the same answers.

    python bench/call_graphs.py                 writes bench/results/call-graphs.json

The tests compare the same graphs with the sources (tests/unit/agents/test_forge.py, test_pilot.py, test_branch.py, test_beam.py, test_worldmodel.py,
test_descend.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit" / "agents")]

from workflow_fakes import SearchRoles, engine  # noqa: E402

from agents.call_graph import as_json, call_graph  # noqa: E402

PROGRAMS = {"forge": 14, "pilot": 60, "branch": 60, "beam": 60, "worldmodel": 40, "descend": 30, "random": 14}


async def recorded(workflow: str, programs: int) -> dict:
    run = engine(workflow, SearchRoles(faults=(0, 1, 0, 2, 0, 9), first_fault=1), candidates=programs)
    summary = await run.execute()
    calls = call_graph(run.journal.events)
    counts = Counter(f"{call.role} {call.situation}" for call in calls)
    return {
        "programs": len(summary.candidates),
        "outcome": summary.outcome,
        "reason": summary.reason,
        "calls": dict(sorted(counts.items())),
        "graph": as_json(calls),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results" / "call-graphs.json")
    arguments = parser.parse_args()
    found = {workflow: asyncio.run(recorded(workflow, programs)) for workflow, programs in PROGRAMS.items()}
    text = "{\n" + ",\n".join(f'"{name}": {one_a_line(graph)}' for name, graph in found.items()) + "\n}\n"
    arguments.results.write_text(text)
    for name, graph in found.items():
        print(f"{name}: {graph['programs']} programs, {graph['outcome']}; {graph['calls']}")
    return 0


def one_a_line(graph: dict) -> str:
    calls = ",\n".join("  " + json.dumps(call) for call in graph["graph"])
    head = json.dumps({key: value for key, value in graph.items() if key != "graph"})
    return f'{head[:-1]}, "graph": [\n{calls}\n]}}'


if __name__ == "__main__":
    sys.exit(main())
