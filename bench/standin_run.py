"""Runs `stitch` to completion against a separate stand-in and returns the outcome. Also defines the models for a control that receives no
evidence."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agents.events import NewEvent
from agents.journal import FileJournal
from agents.llm.messages import Delta, Message, Reply, Request
from agents.llm.models import Models
from agents.local import LocalVerifier
from agents.projection import Summary
from agents.roles.edits import folded
from agents.settings import Budget, Settings
from tests.engines import engine_of
from tests.standin import KINDS, FaultPlan, StandIn
from tests.standin.answers import Author
from tests.standin.cheats import cheat

ROOT = Path(__file__).resolve().parent.parent
PROFILE = """[profiles.stand-in]
kind = "openai"
base_url = "{base_url}"
model = "stand-in"
limits = {{ read_seconds = 6, retries = 5 }}
"""
HANG = 30.0  # seconds; longer than the client waits
RESUMES = 5  # how many times a run that paused because the model did not answer is resumed, as a person would do
RUN_LIMIT = 1800.0  # seconds
UNEXPECTED = "the engine stopped at an unexpected"
Mode = Literal["informed", "blind"]


@dataclass(frozen=True)
class Run:
    mode: Mode
    rate: float
    seed: int
    task: str
    index: int  # the task's index in the suite
    count: int

    @property
    def name(self) -> str:
        return f"{self.task}-{self.mode}-{self.rate:g}-{self.seed}"


class BlindModels:
    """Shows every role the first prompt that it ever received, so that every retry is made without evidence. The purpose of the request determines
    the role."""

    def __init__(self, models: Models):
        self.models = models
        self._first: dict[str, list[Message]] = {}

    def known(self, profile: str) -> bool:
        return self.models.known(profile)

    def estimate(self, profile: str, request: Request) -> dict[str, float]:
        return self.models.estimate(profile, request)

    async def ask(self, profile: str, request: Request, *, key: str, run: str, on_delta: Callable[[Delta], Awaitable[None]]) -> Reply:
        first = self._first.setdefault(request.purpose.partition("/")[0], request.messages)
        return await self.models.ask(profile, request.model_copy(update={"messages": first}), key=key, run=run, on_delta=on_delta)


async def perform(run: Run, client: Any, author: Author, folder: Path, device: str, calls: int) -> dict[str, Any]:
    """Performs a run and returns its row. `client` is a `verifier.client.Verifier`; `folder` belongs to the run and is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = (ROOT / "examples" / f"{run.task}.py").read_text()
    plan = FaultPlan(run.seed, run.rate, KINDS, (run.index, run.count))
    budget = Budget(calls=calls, candidates=calls, verifier_seconds=None, seconds=None)
    settings = Settings(planner="stand-in", coder="stand-in", judge="stand-in", device=device, target=1.0, budget=budget, seed=run.seed)
    pauses: list[str] = []
    async with StandIn(plan, hang=HANG, author=author) as server:
        (folder / "llm.toml").write_text(PROFILE.format(base_url=server.base_url))
        environment = {"STITCHWORK_LLM_PROFILES": str(folder / "llm.toml"), "DATA_DIR": str(folder)}
        models: Any = Models(environment)
        if run.mode == "blind":
            models = BlindModels(models)
        while True:
            journal = FileJournal(folder / "run")
            engine = engine_of(journal, LocalVerifier(journal, client, device), settings, source, run.task, models=models, on_pause="stop")
            summary = await engine.execute()
            if summary.state != "paused" or len(pauses) >= RESUMES:
                break
            pauses.append(last_pause(await journal.load()))
            await journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "resume", "by": "the bench"})])
        candidates = await candidates_of(journal, summary, source, [e["fault"] for e in server.record], device)
    best = next((c for c in candidates if c["number"] == summary.best), None)
    confirmed = summary.outcome in ("improved", "matched") and best is not None and not best["cheat"]
    return {
        "success": confirmed,
        "lost": summary.state not in ("finished", "paused") or UNEXPECTED in (summary.reason or ""),
        "too_busy": not confirmed and "inconclusive" in (summary.reason or ""),
        "state": summary.state,
        "outcome": summary.outcome,
        "reason": summary.reason,
        "best": best,
        "candidates": candidates,
        "cheats": [{"name": c["cheat"], "status": c["status"], "message": c["message"]} for c in candidates if c["cheat"]],
        "pauses": pauses,
        "calls": summary.spent.get("calls", 0),
        "spent": summary.spent,
        "requests": len(server.record),
        "faults": dict(Counter(e["fault"].partition(":")[0] or "none" for e in server.record)),
    }


def last_pause(events: list[Any]) -> str:
    return next((str(event.payload.get("reason", "")) for event in reversed(events) if event.kind == "run.paused"), "")


async def candidates_of(journal: FileJournal, summary: Summary, task: str, faults: list[str], device: str) -> list[dict[str, Any]]:
    """Returns verdicts, and the cheat that a candidate contained, identified by its text."""
    names = {fault.partition(":")[2] for fault in faults if fault.startswith("cheat:")}
    kind = device.partition(":")[0]
    known = {str(cheat(name, task, kind)).strip(): name for name in names}
    found = []
    for candidate in summary.candidates:
        text = folded((await journal.get(candidate.program.sha)).decode()).strip()
        found.append(
            {
                "number": candidate.number,
                "step": candidate.step,
                "status": candidate.status,
                "message": (candidate.message or "")[:300],
                "tier": candidate.tier,
                "class": candidate.program_class,
                "speedup": candidate.speedup.model_dump() if candidate.speedup else None,
                "cheat": known.get(text, ""),
            }
        )
    return found
