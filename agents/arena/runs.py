"""Runs workflows on real tasks. These are ordinary runs, executed one at a time on one device, each in its own folder and with the same budget."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.arena.scoring import FinishedRun
from agents.journal import FileJournal
from agents.local import Client, LocalVerifier
from agents.memory.inspirations import FolderInspirations, Split
from agents.payloads import RunFinished, RunPaused, RunResumed
from agents.ports import ModelPort
from agents.projection import Summary
from agents.results import write_results
from agents.roles.casting import roles_for
from agents.run import Engine
from agents.settings import Budget, Settings
from agents.steering import control
from agents.workflows import FUNCTIONS
from verifier.source import sha256

RUNS = "runs"


@dataclass(frozen=True)
class Contest:
    """A contest: every workflow runs on every task with every seed, and all other settings are the same."""

    tasks: Mapping[str, str]  # name: source
    workflows: Sequence[str]
    seeds: Sequence[int]
    llm: str
    budget: Budget
    device: str
    precision: str = "fp32-strict"

    def settings(self, workflow: str, seed: int) -> Settings:
        roles = {"planner": self.llm, "coder": self.llm, "judge": self.llm}
        chosen = {"workflow": workflow, "device": self.device, "precision": self.precision, "budget": self.budget, "seed": seed, **roles}
        return Settings.model_validate(chosen)

    @property
    def split(self) -> Split:
        """Returns the split that contains the contest's tasks. These tasks are being scored, so nothing learned on one of them may help with
        another."""
        return Split(tasks=frozenset(sha256(source) for source in self.tasks.values()))

    def plain(self) -> dict[str, Any]:
        """Returns the settings that must match when a contest is resumed."""
        tasks = {name: sha256(source) for name, source in self.tasks.items()}
        return {
            "tasks": tasks, "workflows": list(self.workflows), "seeds": list(self.seeds), "llm": self.llm, "budget": self.budget.model_dump(),
            "device": self.device, "precision": self.precision,
        }  # fmt: skip


async def run_all(
    contest: Contest,
    out: Path,
    client: Client,
    models: ModelPort | None,
    learn_from: Path | None,
    on_row: Callable[[list[FinishedRun], list[str]], None],
) -> tuple[list[FinishedRun], list[str]]:
    """Returns a row for each run that has ended and a line for each paused run. The outer loop is over seeds, so even an interrupted contest
    has compared all workflows."""
    rows: list[FinishedRun] = []
    waiting: list[str] = []
    for seed in contest.seeds:
        for name, source in contest.tasks.items():
            for workflow in contest.workflows:
                folder = out / RUNS / workflow / name / f"seed-{seed}"
                summary = await run_one(contest, folder, name, source, workflow, seed, client, models, learn_from)
                if summary.state == "finished":
                    rows.append(row_of(summary, name, workflow, seed, str(folder.relative_to(out))))
                else:
                    waiting.append(
                        f"{workflow} on {name}, seed {seed}: {summary.state}; {summary.reason or 'see its trace'} ({folder.relative_to(out)})"
                    )
                on_row(rows, waiting)
    return rows, waiting


async def run_one(
    contest: Contest,
    folder: Path,
    name: str,
    source: str,
    workflow: str,
    seed: int,
    client: Client,
    models: ModelPort | None,
    learn_from: Path | None,
) -> Summary:
    """Starts a run, or resumes it if it was interrupted or paused. A finished run is only read."""
    journal = FileJournal(folder)
    settings = contest.settings(workflow, seed)
    engine = Engine(
        journal,
        LocalVerifier(journal, client, contest.device),
        settings,
        source,
        name,
        FUNCTIONS[settings.workflow],
        roles_for,
        models=models,
        on_pause="stop",
        inspirations=FolderInspirations(learn_from) if learn_from else None,
        split=contest.split,
    )
    before = [event.kind for event in await journal.load() if event.kind in (RunPaused.kind, RunResumed.kind, RunFinished.kind)]
    if before and before[-1] == RunPaused.kind:
        await journal.append([control("resume")])
    summary = await engine.execute()
    write_results(folder, summary)
    return summary


def row_of(summary: Summary, task: str, workflow: str, seed: int, place: str) -> FinishedRun:
    """Returns the row of a finished run. Only a result confirmed in the full tier counts as a success."""
    spent = {"calls": 0, "tokens": 0, "dollars": 0.0, "candidates": 0, "verifier_seconds": 0.0, "seconds": 0.0, **summary.spent}
    return FinishedRun(
        task=task, workflow=workflow, seed=seed, success=summary.outcome == "improved" and summary.speedup is not None,
        speedup=summary.speedup.ratio if summary.speedup else None, outcome=summary.outcome, calls=int(spent["calls"]), tokens=int(spent["tokens"]),
        dollars=spent["dollars"], programs=int(spent["candidates"]), verifier_seconds=spent["verifier_seconds"], seconds=spent["seconds"],
        reason=summary.reason[:500], place=place,
    )  # fmt: skip


def say_row(row: FinishedRun) -> None:
    found = f"{row.speedup:.2f}x" if row.speedup else row.outcome
    print(
        f"{row.workflow:8} {row.task:24} seed {row.seed}: {found}, {row.calls} calls, {row.programs} programs, {row.seconds:.0f} s", file=sys.stderr
    )


def read_plain(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return None
