"""Parallel workers: they share one budget and one pause, and take the same course after an interruption."""

from __future__ import annotations

import asyncio

import pytest
from agent_fakes import TASK, FakeClient, settings
from model_fakes import ESTIMATE, FakeModels, asking

from agents.budget import OutOfBudget
from agents.events import NewEvent
from agents.journal import MemoryJournal
from agents.llm.errors import ModelFailure
from agents.local import LocalVerifier
from agents.run import Engine, Finish
from agents.settings import Budget
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio
WORKERS, ROUNDS = 4, 3


async def wide(run) -> Finish:
    """Runs workers that each make a request and verify, round by round; the engine numbers the programs."""

    async def worker(name: str) -> list[int]:
        numbers = []
        for number in range(1, ROUNDS + 1):
            async with run.span(f"{name}/round-{number}", name, "coder") as span:
                text = (await span.ask("coder", "fake", asking("coder/again", f"{name} {number}"))).text
                event = await span.propose(text, parent=None, title=name, step="", changes="", strategy="")
                numbers.append(event.candidate)
                await span.verify(text, event.candidate, "quick")
        return numbers

    found = await run.parallel(*(worker(f"worker-{n}") for n in range(1, WORKERS + 1)))
    refused = sum(isinstance(one, OutOfBudget) for one in found)
    numbers = sorted(n for one in found if not isinstance(one, OutOfBudget) for n in one)
    return Finish("matched", f"{refused} refused, {numbers}")


def engine(journal, models, client=None, on_pause="wait", **budget) -> Engine:
    chosen = settings(budget=Budget(**{"candidates": 100, **budget}))
    verifier = LocalVerifier(journal, client or FakeClient(), "cpu")
    return engine_of(journal, verifier, chosen, TASK, "softmax", workflow=wide, models=models, on_pause=on_pause)


class SlowModels(FakeModels):
    """Models that pause before each reply, so all calls that have begun are in flight at the same time."""

    def __init__(self):
        super().__init__()
        self.flying = self.most = 0

    async def ask(self, profile, request, **more):
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            await asyncio.sleep(0.01)
            return await super().ask(profile, request, **more)
        finally:
            self.flying -= 1


async def test_workers_share_the_budget_and_never_overshoot_it():
    for calls in (1, 5, 7, 12, 20):
        journal, models = MemoryJournal(), SlowModels()
        summary = await engine(journal, models, calls=calls).execute()
        assert len(models.asked) == summary.spent["calls"] == min(calls, WORKERS * ROUNDS)
        assert models.most == min(calls, WORKERS)
        assert summary.outcome == "matched" and summary.open_spans() == []


async def test_dollars_are_reserved_by_the_estimate():
    models = SlowModels()
    await engine(MemoryJournal(), models, dollars=2.5 * ESTIMATE["dollars"]).execute()
    assert models.most == 2, "a third call at the same time might have overshot"


@pytest.mark.slow
async def test_candidates_get_numbers_of_their_own_and_keep_them():
    whole, models = MemoryJournal(), SlowModels()
    summary = await engine(whole, models).execute()
    assert [c.number for c in summary.candidates] == list(range(1, WORKERS * ROUNDS + 1))
    for cut in range(0, len(whole.events), 5):
        journal, again = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts), SlowModels()
        resumed = await engine(journal, again).execute()
        assert [c.number for c in resumed.candidates] == list(range(1, WORKERS * ROUNDS + 1))
        kept = {c.number: c.span for c in summary.candidates if c.at and c.at <= (whole.events[cut - 1].at if cut else "")}
        assert {number: c.span for c in resumed.candidates if (number := c.number) in kept} == kept


@pytest.mark.slow
async def test_interrupted_anywhere_only_calls_in_flight_are_repeated():
    whole, models = MemoryJournal(), SlowModels()
    await engine(whole, models).execute()
    for cut in range(len(whole.events)):
        journal, again = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts), SlowModels()
        summary = await engine(journal, again).execute()
        done = {e.payload["key"] for e in whole.events[:cut] if e.kind == "llm.completed"}
        flying = {e.payload["key"] for e in whole.events[:cut] if e.kind == "llm.requested"} - done
        assert sorted(again.asked) == sorted(call for call in models.asked if call[0] not in done), cut
        assert summary.spent["calls"] == len(models.asked) + len(flying), cut


@pytest.mark.slow
async def test_interrupted_under_a_budget_nothing_is_overshot_by_more_than_the_calls_in_flight():
    whole, models = MemoryJournal(), SlowModels()
    await engine(whole, models, calls=7).execute()
    for cut in range(len(whole.events)):
        journal, again = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts), SlowModels()
        summary = await engine(journal, again, calls=7).execute()
        sent = len({e.seq for e in whole.events[:cut] if e.kind == "llm.requested"}) + len(again.asked)
        assert sent <= 7 + WORKERS and summary.spent["calls"] <= 7 and summary.outcome == "matched", cut


async def test_one_pause_for_all_workers():
    journal, models = MemoryJournal(), SlowModels()
    models.failures = [ModelFailure("busy", "too many requests") for _ in range(WORKERS)]
    task = asyncio.create_task(engine(journal, models).execute())
    while not models.asked or models.failures or not any(e.kind == "run.paused" for e in journal.events):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    await journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "resume", "by": "ada"})])
    summary = await asyncio.wait_for(task, 5)
    kinds = [e.kind for e in journal.events]
    assert summary.outcome == "matched" and (kinds.count("run.paused"), kinds.count("run.resumed")) == (1, 1)
    assert kinds.count("llm.failed") == WORKERS and len(models.asked) == WORKERS * ROUNDS + WORKERS


async def test_stopping_with_calls_in_flight_leaves_nothing_behind():
    journal, models = MemoryJournal(), SlowModels()
    models.failures = [ModelFailure("refused", "no")]
    summary = await asyncio.wait_for(engine(journal, models, on_pause="stop").execute(), 5)
    assert summary.state == "paused" and models.flying == 0
    events = len(journal.events)
    await asyncio.sleep(0.05)
    assert len(journal.events) == events


async def test_a_defect_in_one_worker_ends_the_others():
    journal, models = MemoryJournal(), SlowModels()

    async def broken(key, on_delta):
        if key.startswith("worker-2/round-2"):
            raise KeyError("groups")

    models.before = broken
    summary = await engine(journal, models).execute()
    assert summary.outcome == "failed" and "KeyError" in summary.errors[0]
    assert models.flying == 0 and journal.events[-1].kind == "run.finished" and summary.open_spans() == []
