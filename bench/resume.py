"""Compares an interrupted and resumed run with an undisturbed one, call by call.

    python bench/resume.py [--seeds 1 2 3 4 5] [--rates 0 0.3 0.6] [--cuts 6] [--out bench/results/resume.json]

Runs `stitch` with the stand-in (tests/standin) as the model for all three roles, with content and transport faults. Verdicts are derived from the
marks that faults leave in a program, so that a run does not take minutes. The whole run is stored. Then it is cut off at many of its events, as `kill
-9` would do after that event was committed, and a new engine resumes it from the journal. The model behaves the same throughout, because it repeats
its earlier reply to a request. For every cut, the script asserts that the resumed run makes exactly those calls of the whole run that had not been
answered, in the same order; that it spends as much as the whole run plus the estimates for calls in flight, counted once; and that the outcome, the
candidates and their verdicts are the same. Results are written after each whole run; an interrupted series continues with the missing runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests/unit/agents")]

from agents.journal import MemoryJournal  # noqa: E402
from agents.llm.messages import Delta, Reply, Request  # noqa: E402
from agents.llm.models import Models  # noqa: E402
from agents.local import LocalVerifier  # noqa: E402
from agents.projection import Summary  # noqa: E402
from agents.settings import Budget, Settings  # noqa: E402
from tests.engines import engine_of  # noqa: E402
from tests.standin import CONTENT, FaultPlan, StandIn  # noqa: E402
from tests.standin.answers import Author  # noqa: E402
from tests.unit.standin.marked_verifier import MarkedVerifier  # noqa: E402

PROFILE = '[profiles.stand-in]\nkind = "openai"\nbase_url = "{base_url}"\nmodel = "stand-in"\n'
CANDIDATES = 6
FAULTS = (*CONTENT, "server-error", "rate-limited", "connection-reset", "truncated-stream")  # a hang only costs time


class SameModel:
    """A model that repeats its reply to a repeated request; `asked` lists every request sent in this session."""

    def __init__(self, models: Models, said: dict[str, Reply]):
        self.models, self.said = models, said
        self.asked: list[tuple[str, str]] = []

    def known(self, profile: str) -> bool:
        return self.models.known(profile)

    def estimate(self, profile: str, request: Request) -> dict[str, float]:
        return self.models.estimate(profile, request)

    async def ask(self, profile: str, request: Request, *, key: str, run: str, on_delta) -> Reply:
        text = request.model_dump_json()
        self.asked.append((key, text))
        if text not in self.said:
            self.said[text] = await self.models.ask(profile, request, key=key, run=run, on_delta=on_delta)
        reply = self.said[text]
        await on_delta(Delta(text=reply.text))
        return reply


async def main(arguments: argparse.Namespace) -> int:
    rows = json.loads(arguments.out.read_text())["each"] if arguments.out.exists() else []
    author = Author()
    try:
        for rate in arguments.rates:
            for seed in arguments.seeds:
                if any((row["rate"], row["seed"]) == (rate, seed) for row in rows):
                    continue
                rows.append(await compare(rate, seed, arguments.cuts, author))
                write(arguments.out, rows)
                print(json.dumps(rows[-1]), flush=True)
    finally:
        await author.close()
    return 0 if all(row["same"] for row in rows) else 1


async def compare(rate: float, seed: int, cuts: int, author: Author) -> dict[str, Any]:
    async with StandIn(FaultPlan(seed, rate, FAULTS), author=author) as server:
        with tempfile.TemporaryDirectory() as folder:
            profiles = Path(folder) / "llm.toml"
            profiles.write_text(PROFILE.format(base_url=server.base_url))
            models = Models({**os.environ, "STITCHWORK_LLM_PROFILES": str(profiles), "DATA_DIR": folder})
            said: dict[str, Reply] = {}
            whole = MemoryJournal()
            alone, calls = await execute(whole, models, said, seed)
            asked = [event.seq for event in whole.events if event.kind == "llm.requested"]
            points = {*range(1, len(whole.events), max(1, len(whole.events) // cuts)), *asked[seed % 2 :: 2]}
            wrong: list[str] = []
            resumed = in_flight = 0
            for cut in sorted(points):
                journal = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts)
                done = {e.payload["key"] for e in journal.events if e.kind == "llm.completed"}
                estimates = {e.payload["key"]: e.payload["estimate"] for e in journal.events if e.kind == "llm.requested"}
                flying = [estimate for key, estimate in estimates.items() if key not in done]
                summary, again = await execute(journal, models, said, seed)
                resumed, in_flight = resumed + 1, in_flight + len(flying)
                if again != [call for call in calls if call[0] not in done]:
                    wrong.append(f"event {cut}: other calls")
                for unit in ("calls", "tokens"):
                    if summary.spent[unit] != alone.spent[unit] + sum(estimate[unit] for estimate in flying):
                        wrong.append(f"event {cut}: {summary.spent[unit]:g} {unit}, {alone.spent[unit]:g} alone")
                if found(summary) != found(alone):
                    wrong.append(f"event {cut}: another result")
    return {
        "rate": rate, "seed": seed, "events": len(whole.events), "calls": len(calls), "outcome": alone.outcome, "resumed": resumed,
        "with_a_call_in_flight": in_flight, "same": not wrong, "wrong": wrong,
    }  # fmt: skip


async def execute(journal: MemoryJournal, models: Models, said: dict[str, Reply], seed: int) -> tuple[Summary, list[tuple[str, str]]]:
    # There is no limit on calls, because calls in flight would count towards it and end the search earlier than in an undisturbed run.
    budget = Budget(candidates=CANDIDATES, verifier_seconds=None, seconds=None)
    settings = Settings(planner="stand-in", coder="stand-in", judge="stand-in", budget=budget, seed=seed)
    same = SameModel(models, said)
    source = (ROOT / "examples/softmax.py").read_text()
    summary = await engine_of(journal, LocalVerifier(journal, MarkedVerifier(), "cpu"), settings, source, "softmax", models=same).execute()
    return summary, same.asked


def found(summary: Summary) -> dict[str, Any]:
    candidates = [(c.number, c.parent, c.sha, c.status, c.tier, c.title) for c in summary.candidates]
    return {"outcome": summary.outcome, "reason": summary.reason, "best": summary.best, "candidates": candidates}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    totals = {
        "runs": len(rows), "resumed": sum(row["resumed"] for row in rows), "with_a_call_in_flight": sum(row["with_a_call_in_flight"] for row in rows),
        "same_call_for_call": sum(row["same"] for row in rows),
    }  # fmt: skip
    path.write_text(json.dumps({"what": "interrupted and resumed runs, call for call", **totals, "each": rows}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0, 0.3, 0.6])
    parser.add_argument("--cuts", type=int, default=6, help="interruptions of each run, besides one in mid-call at every other call")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/resume.json")
    sys.exit(asyncio.run(main(parser.parse_args())))
