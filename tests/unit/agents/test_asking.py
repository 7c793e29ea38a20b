"""Exchanges with language models as effects of a run."""

from __future__ import annotations

import asyncio
import json

import pytest
from agent_fakes import TASK, FakeClient, settings
from model_fakes import AskingRoles, FakeModels

from agents.events import NewEvent
from agents.journal import MemoryJournal
from agents.llm.errors import ModelFailure
from agents.llm.messages import Delta, Usage
from agents.local import LocalVerifier
from agents.projection import project
from agents.run import Engine
from agents.settings import Budget
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio


def engine(journal, models, programs=4, client=None, on_pause="wait", **changes) -> Engine:
    verifier = LocalVerifier(journal, client or FakeClient(), "cpu")
    roles = AskingRoles(programs).roles()
    chosen = settings(**changes)
    return engine_of(journal, verifier, chosen, TASK, "softmax", roles=roles, models=models, on_pause=on_pause)


def of_kind(journal, *kinds):
    return [e for e in journal.events if e.kind in kinds]


def streamed(journal) -> dict[str, str]:
    """Returns the text of each message that a reader of the deltas has received by the end."""
    texts: dict[str, str] = {}
    for event in of_kind(journal, "message.delta"):
        p = event.payload
        assert p["offset"] <= len(texts.get(p["message"], "")), "no gap"
        texts[p["message"]] = texts.get(p["message"], "")[: p["offset"]] + p["text"]
    return texts


async def test_an_exchange_is_journalled_with_request_reply_and_reasoning():
    journal, models = MemoryJournal(), FakeModels()
    models.reasoning = "step by step"
    summary = await engine(journal, models).execute()
    assert summary.outcome == "improved"
    requested, completed = of_kind(journal, "llm.requested"), of_kind(journal, "llm.completed")
    assert len(requested) == len(completed) == len(models.asked) == summary.spent["calls"]
    assert summary.spent["tokens"] == 150 * len(models.asked) and summary.spent["dollars"] == pytest.approx(0.001 * len(models.asked))
    first = completed[0].payload
    assert (first["key"], first["profile"], first["purpose"], first["model"], first["finish"]) == ("plan#1", "fake", "planner/plan", "fake-1", "stop")
    reply = json.loads(journal.artefacts[first["reply"]["sha"]])
    assert reply["text"] == streamed(journal)["plan#1"] and reply["reasoning"] == ""
    assert journal.artefacts[first["reasoning"]["sha"]] == b"step by step"
    assert json.loads(journal.artefacts[requested[0].payload["request"]["sha"]])["messages"][0]["content"] == TASK
    assert requested[0].agent == "planner" and completed[0].agent == "planner"


async def test_pieces_are_coalesced():
    journal, models = MemoryJournal(), FakeModels()
    await engine(journal, models).execute()
    deltas = [e for e in of_kind(journal, "message.delta") if e.payload["message"] == "plan#1"]
    assert len(deltas) <= 3, "ten pieces that arrive at once are one event or two"


async def test_a_text_that_begins_again_replaces_the_rest():
    journal, models = MemoryJournal(), FakeModels()

    async def stutter(key, on_delta):
        await asyncio.sleep(0.1)
        await on_delta(Delta(text=" and something that the reply does not hold"))
        await asyncio.sleep(0.1)

    models.before = stutter
    await engine(journal, models, programs=1).execute()
    for event in of_kind(journal, "llm.completed"):
        text = json.loads(journal.artefacts[event.payload["reply"]["sha"]])["text"]
        assert streamed(journal)[event.payload["key"]] == text


async def test_a_model_that_does_not_answer_pauses_the_run_until_a_person_resumes_it():
    journal, models = MemoryJournal(), FakeModels()
    models.failures = [ModelFailure("refused", "the server refuses the key", "set FAKE_KEY", attempts=3)]
    task = asyncio.create_task(engine(journal, models).execute())
    while project(journal.events).state != "paused":
        await asyncio.sleep(0.01)
    paused = of_kind(journal, "run.paused")[0].payload
    assert (paused["kind"], paused["reason"], paused["hint"], paused["profile"]) == ("refused", "the server refuses the key", "set FAKE_KEY", "fake")
    await asyncio.sleep(0.05)
    assert not task.done() and len(models.asked) == 1
    await journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "resume", "by": "ada"})])
    summary = await asyncio.wait_for(task, 5)
    assert summary.outcome == "improved" and models.asked[0] == models.asked[1]
    assert summary.spent["calls"] == 3 + len(models.asked) - 1, "the attempts of the failure count"
    assert of_kind(journal, "run.resumed")[0].payload["reason"] == "resumed by ada"


async def test_a_run_paused_for_want_of_a_model_stays_so_after_an_interruption():
    journal, models = MemoryJournal(), FakeModels()
    models.failures = [ModelFailure("unreachable", "no connection")]
    summary = await engine(journal, models, on_pause="stop").execute()
    assert summary.state == "paused" and journal.events[-1].kind == "run.paused"
    events = len(journal.events)
    task = asyncio.create_task(engine(journal, models).execute())
    await asyncio.sleep(0.05)
    assert len(journal.events) == events and len(models.asked) == 1
    await journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "resume", "by": "ada"})])
    assert (await asyncio.wait_for(task, 5)).outcome == "improved"


async def test_without_models_a_run_pauses_with_what_to_do():
    journal = MemoryJournal()
    summary = await engine(journal, None, on_pause="stop").execute()
    paused = of_kind(journal, "run.paused")[0].payload
    assert summary.state == "paused" and paused["kind"] == "configuration" and "built-in" in paused["hint"]
    assert summary.spent["calls"] == 0


async def test_a_budget_in_calls_ends_the_search_and_is_never_overshot():
    journal, models = MemoryJournal(), FakeModels()
    summary = await engine(journal, models, budget=Budget(calls=4)).execute()
    assert len(models.asked) == 4 and summary.spent["calls"] == 4 and "4 model calls" in summary.reason
    assert summary.outcome == "improved", "what was found until then is confirmed"


async def test_a_budget_in_dollars_refuses_by_the_estimate():
    journal, models = MemoryJournal(), FakeModels()
    summary = await engine(journal, models, budget=Budget(dollars=0.0125)).execute()
    assert len(models.asked) == 3 and summary.spent["dollars"] == pytest.approx(0.003)


async def test_tokens_that_the_server_does_not_count_are_taken_from_the_characters():
    journal, models = MemoryJournal(), FakeModels()
    models.usage = None
    summary = await engine(journal, models).execute()
    assert 0 < summary.spent["tokens"] < 1000 * len(models.asked)
    first = of_kind(journal, "llm.completed")[0].payload
    assert first["counted"] == "estimated" and first["usage"]["input_tokens"] > 0, "estimated, and marked so"
    models = FakeModels()
    models.usage = Usage(input_tokens=7, output_tokens=3)
    assert (await engine(MemoryJournal(), models).execute()).spent["tokens"] == 10 * len(models.asked)


@pytest.mark.slow
@pytest.mark.parametrize("programs", [3])
async def test_killed_after_any_event_it_asks_call_for_call_the_same(programs):
    whole, models = MemoryJournal(), FakeModels()
    finished = await engine(whole, models, programs).execute()
    calls, wanted = models.asked, finished.model_dump(include={"outcome", "reason", "best", "speedup", "candidates"})
    for cut in range(len(whole.events) + 1):
        journal = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts)
        models, client = FakeModels(), FakeClient()
        summary = await engine(journal, models, programs, client).execute()
        done = {e.payload["key"] for e in whole.events[:cut] if e.kind == "llm.completed"}
        asked = {e.payload["key"] for e in whole.events[:cut] if e.kind == "llm.requested"}
        assert models.asked == [call for call in calls if call[0] not in done], f"cut at {cut}"
        assert len(models.asked) + len(asked) - len(calls) in (0, 1), "at most the call in flight is repeated"
        in_flight = len(asked - done)
        assert summary.spent["calls"] == len(calls) + in_flight, "and counts"
        assert summary.spent["tokens"] == 150 * len(calls) + 1000 * in_flight
        found = summary.model_dump(include=set(wanted))
        for row in found["candidates"] + wanted["candidates"]:
            row.pop("at", None)
        assert found == wanted, f"cut at {cut}"
        assert project(journal.events).model_dump() == summary.model_dump()
        texts = streamed(journal)
        for event in of_kind(journal, "llm.completed"):
            assert texts[event.payload["key"]] == json.loads(journal.artefacts[event.payload["reply"]["sha"]])["text"]


async def test_killed_in_mid_stream_only_that_call_is_repeated_and_its_cost_counts():
    whole = FakeModels()
    await engine(MemoryJournal(), whole).execute()
    journal, models = MemoryJournal(), FakeModels()
    reached = asyncio.Event()

    async def hang(key, on_delta):
        if len(models.asked) == 3:
            await asyncio.sleep(0.1)
            reached.set()
            await asyncio.Event().wait()

    models.before = hang
    task = asyncio.create_task(engine(journal, models).execute())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert journal.events[-1].kind == "message.delta"
    models.before = None
    summary = await engine(journal, models).execute()
    assert len(models.asked) == len(whole.asked) + 1 and models.asked[2] == models.asked[3]
    assert summary.spent["calls"] == len(whole.asked) + 1 and summary.spent["tokens"] == 150 * len(whole.asked) + 1000


async def test_cancelled_in_mid_stream():
    journal, models = MemoryJournal(), FakeModels()

    async def cancel(key, on_delta):
        await journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "cancel", "by": "ada"})])
        await asyncio.Event().wait()

    models.before = cancel
    summary = await asyncio.wait_for(engine(journal, models).execute(), 5)
    assert (summary.state, summary.outcome) == ("finished", "cancelled") and len(models.asked) == 1
    assert summary.open_spans() == []
