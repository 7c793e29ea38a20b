"""People in the loop: notes, plans that wait for review, and forks."""

from __future__ import annotations

import asyncio

import pytest
from agent_fakes import TASK, FakeClient, settings
from model_fakes import AskingRoles, FakeModels

from agents.events import NewEvent
from agents.forking import ForkRefused, fork, refusal, settings_of
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.projection import project
from agents.run import Engine
from agents.settings import Budget, Settings
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio


def engine(journal, models, programs=3, *, roles=None, client=None, on_pause="wait", chosen: Settings | None = None, **changes) -> Engine:
    verifier = LocalVerifier(journal, client or FakeClient(), "cpu")
    roles = roles or AskingRoles(programs).roles()
    return engine_of(journal, verifier, chosen or settings(**changes), TASK, "softmax", roles=roles, models=models, on_pause=on_pause)


async def person(journal, kind: str, **payload) -> None:
    await journal.append([NewEvent(kind=kind, agent="person", payload={"by": "ada", **payload})])


async def paused(journal) -> None:
    while project(journal.events).state != "paused":
        await asyncio.sleep(0.01)


def keys(journal, kind: str) -> list[str]:
    return [e.payload["key"] for e in journal.events if e.kind == kind]


async def test_a_note_goes_into_the_next_prompt_of_its_role_exactly_once():
    journal, models = MemoryJournal(), FakeModels()

    async def note(key, on_delta):
        if len(models.asked) == 2:
            await person(journal, "note.added", to="coder", text="use one pass")
            await person(journal, "note.added", to="all", text="mind the tails")

    models.before = note
    await engine(journal, models).execute()
    with_one = [key for key, text in models.asked if "ada: use one pass" in text]
    assert len(with_one) == 1
    by_role = {e.payload["key"]: e.agent for e in journal.events if e.kind == "llm.requested"}
    assert by_role[with_one[0]] == "coder"
    assert sorted(by_role[key] for key, text in models.asked if "ada: mind the tails" in text) == ["coder", "verifier"]


@pytest.mark.slow
async def test_notes_are_given_once_wherever_the_run_is_interrupted():
    whole, models = MemoryJournal(), FakeModels()

    async def note(key, on_delta):
        if len(models.asked) == 2:
            await person(whole, "note.added", to="all", text="mind the tails")

    models.before = note
    await engine(whole, models).execute()
    said = next(e.seq for e in whole.events if e.kind == "note.added")
    for cut in range(said, len(whole.events)):
        journal, again = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts), FakeModels()
        await engine(journal, again).execute()
        requested = {e.payload["key"]: (e.agent, e.payload.get("notes")) for e in journal.events if e.kind == "llm.requested"}
        assert sorted(role for role, notes in requested.values() if notes) == ["coder", "verifier"], f"cut at {cut}"
        done = keys_done(whole.events[:cut])
        if {e.payload["key"] for e in whole.events[:cut] if e.kind == "llm.requested"} == done:  # otherwise, the note precedes the repeated call
            assert [key for key, _ in again.asked] == [key for key, _ in models.asked if key not in done]


def keys_done(events) -> set[str]:
    return {e.payload["key"] for e in events if e.kind == "llm.completed"}


@pytest.mark.slow
async def test_a_prompt_can_place_its_notes_itself():
    class Placing(AskingRoles):
        async def advise(self, span, situation, attempt):
            self.noted.append(await span.notes("verifier"))
            return await super().advise(span, situation, attempt)

    roles = Placing(3)
    roles.noted = []
    journal, models = MemoryJournal(), FakeModels()
    await person(journal, "note.added", to="verifier", text="look at the tails")
    await engine(journal, models, roles=roles.roles()).execute()
    assert roles.noted == [["ada: look at the tails"], [], []]
    assert not any("look at the tails" in text for _, text in models.asked)
    for cut in range(len(journal.events)):
        roles.noted = []
        await engine(MemoryJournal(journal.run, journal.events[:cut], journal.artefacts), FakeModels(), roles=roles.roles()).execute()
        if cut > 0:
            assert roles.noted == [["ada: look at the tails"], [], []], cut


@pytest.mark.slow
async def test_a_plan_waits_for_its_reader_and_is_worked_by_as_edited():
    journal, models = MemoryJournal(), FakeModels()
    task = asyncio.create_task(engine(journal, models, review_plan=True).execute())
    await paused(journal)
    assert len(models.asked) == 1 and project(journal.events).pause.kind_ == "review"
    await person(journal, "plan.edited", summary="do it by hand", steps=[])
    await person(journal, "control.requested", action="resume")
    summary = await asyncio.wait_for(task, 5)
    assert "do it by hand" in models.asked[1][1] and summary.plan.summary == "do it by hand"
    for cut in range(len(journal.events)):
        again = FakeModels()
        resumed = MemoryJournal(journal.run, journal.events[:cut], journal.artefacts)
        if not any(e.payload.get("action") == "resume" for e in journal.events[:cut]):
            continue
        assert (await engine(resumed, again, review_plan=True).execute()).plan.summary == "do it by hand"
        assert [call for call in models.asked if call[0] not in keys_done(journal.events[:cut])] == again.asked, cut


async def test_an_approved_plan_stays_as_it_is():
    journal, models = MemoryJournal(), FakeModels()
    assert (await engine(journal, models, review_plan=True, on_pause="stop").execute()).state == "paused"
    await person(journal, "control.requested", action="resume")
    summary = await engine(journal, models, review_plan=True).execute()
    assert summary.outcome == "improved" and len([e for e in journal.events if e.kind == "plan.proposed"]) == 1


async def test_a_paused_run_leaves_its_place_once_nothing_is_in_flight_and_goes_on_elsewhere():
    journal, models = MemoryJournal(), FakeModels()

    async def pause(key, on_delta):
        if len(models.asked) == 2:
            await person(journal, "control.requested", action="pause")

    models.before = pause
    first = await asyncio.wait_for(engine(journal, models, on_pause="leave").execute(), 5)
    assert first.state == "paused" and len(keys(journal, "llm.completed")) == 2, "the call that was in flight has ended"
    assert (await asyncio.wait_for(engine(journal, models, on_pause="leave").execute(), 5)).state == "paused", "taken up before it was resumed"
    assert len(models.asked) == 2 and len([e for e in journal.events if e.kind == "run.paused"]) == 1
    await person(journal, "control.requested", action="resume")
    summary = await asyncio.wait_for(engine(journal, models, on_pause="leave").execute(), 5)
    assert summary.outcome == "improved" and len({key for key, _ in models.asked}) == len(models.asked), "and no call is made twice"
    assert [e.payload["reason"] for e in journal.events if e.kind == "run.resumed"] == ["resumed by ada"]


async def test_a_paused_run_that_nobody_holds_is_cancelled_by_whoever_takes_it_up():
    journal, models = MemoryJournal(), FakeModels()
    await person(journal, "control.requested", action="pause")
    assert (await asyncio.wait_for(engine(journal, models, on_pause="leave").execute(), 5)).state == "paused"
    await person(journal, "control.requested", action="cancel")
    assert (await asyncio.wait_for(engine(journal, models, on_pause="leave").execute(), 5)).outcome == "cancelled"


# Forks


class Named(AskingRoles):
    """Roles that put their name in the titles of their programs; the settings choose which of them are used."""

    def __init__(self, name: str, programs: int):
        super().__init__(programs)
        self.who = name

    async def write(self, span, situation, parent, advice):
        edit = await super().write(span, situation, parent, advice)
        return edit.__class__(**{**edit.__dict__, "title": f"by {self.who}"})


@pytest.fixture
def two_coders(monkeypatch):
    """Casts the coder named by `settings.coder`."""
    from agents.roles import casting
    from agents.roles.situation import Roles

    def roles_for(chosen, models):
        role = Named(chosen.coder, 4)
        return Roles(role, role, role)

    monkeypatch.setattr(casting, "roles_for", roles_for)


def cast(journal, models, chosen: Settings) -> Engine:
    return engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), chosen, TASK, "softmax", models=models)


async def forked(whole: MemoryJournal, at: int, chosen: Settings) -> MemoryJournal:
    inherited, event = fork(whole.events, at, chosen, by="ada")
    journal = MemoryJournal(inherited[0].run, inherited, whole.artefacts)
    await journal.append([event])
    return journal


@pytest.mark.slow
async def test_forked_at_any_event_the_past_stays_and_the_future_is_the_new_settings(two_coders):
    whole, models = MemoryJournal(), FakeModels()
    old, new = settings(coder="first"), settings(coder="second", target=50.0, budget=Budget(candidates=5))
    await cast(whole, models, old).execute()
    calls = len(models.asked)
    for at in range(1, len(whole.events) + 1):
        journal, again = await forked(whole, at, new), FakeModels()
        cut = journal.events[-1].payload["from"]["seq"]
        assert journal.run != whole.run and cut <= at
        summary = await cast(journal, again, new).execute()
        assert summary.outcome == "improved" and not summary.errors, f"at {at}: {summary.errors}"
        inherited = [e.payload["candidate"] for e in whole.events[:cut] if e.kind == "candidate.proposed"]
        assert [c.number for c in summary.candidates] == list(range(1, len(summary.candidates) + 1))
        by = {c.number: c.title for c in summary.candidates}
        assert {by[n] for n in inherited} <= {"by first"}, at
        written = {e.span for e in whole.events[:cut] if e.kind == "message.completed" and e.agent == "coder"}  # though perhaps not yet proposed
        assert {c.title for c in summary.candidates if c.number not in inherited and c.span not in written} <= {"by second"}, at
        assert len(again.asked) <= calls + 1 and summary.open_spans() == []
        assert summary.started.coder == "second" and summary.limits["candidates"] == 5
        assert project(journal.events).model_dump() == summary.model_dump()


@pytest.mark.slow
async def test_a_forked_run_is_resumed_like_any_other(two_coders):
    whole = MemoryJournal()
    await cast(whole, FakeModels(), settings(coder="first")).execute()
    at = [e.seq for e in whole.events if e.kind == "candidate.proposed"][1]
    new = settings(coder="second")
    base = await forked(whole, at, new)
    models = FakeModels()
    wanted = await cast(base, models, new).execute()
    for cut in range(at, len(base.events)):
        journal, again = MemoryJournal(base.run, base.events[:cut], base.artefacts), FakeModels()
        if not any(e.kind == "run.forked" for e in journal.events):
            continue
        summary = await cast(journal, again, new).execute()
        assert [c.title for c in summary.candidates] == [c.title for c in wanted.candidates], cut
        done = {e.payload["key"] for e in base.events[at:cut] if e.kind == "llm.completed"}
        assert again.asked == [call for call in models.asked if call[0] not in done], cut


async def test_a_run_out_of_budget_goes_on_where_it_was_refused(two_coders):
    whole, models = MemoryJournal(), FakeModels()
    small = settings(budget=Budget(calls=5))
    await cast(whole, models, small).execute()
    assert len(models.asked) == 5
    at = refusal(whole.events)
    more = settings_of(whole.events).model_copy(update={"budget": Budget(calls=9)})
    journal, again = await forked(whole, at, more), FakeModels()
    summary = await cast(journal, again, more).execute()
    assert summary.spent["calls"] == 5 + len(again.asked) <= 9 and len(again.asked) > 0
    assert summary.inherited["calls"] == 5
    assert refusal(MemoryJournal("x", whole.events[: at - 1]).events) is None


async def test_another_workflow_takes_over_what_all_begin_with():
    whole = MemoryJournal()
    await engine(whole, FakeModels()).execute()
    _, event = fork(whole.events, whole.events[-1].seq, settings(workflow="forge"), by="ada")
    cut = event.payload["from"]["seq"]
    assert whole.events[cut - 1].span == "reference" and whole.events[cut].span == "plan"
    assert event.payload["changed"] == {"workflow": "forge"}


async def test_what_cannot_be_forked_is_refused_with_the_reason():
    whole = MemoryJournal()
    await engine(whole, FakeModels()).execute()
    with pytest.raises(ForkRefused, match="cannot change the precision"):
        fork(whole.events, 5, settings(precision="bf16"), by="ada")
    with pytest.raises(ForkRefused, match="no event 9999"):
        fork(whole.events, 9999, settings(), by="ada")
    with pytest.raises(ForkRefused, match="has not begun"):
        fork([], 1, settings(), by="ada")
    with pytest.raises(ForkRefused, match="own program"):
        fork(whole.events, 5, settings(workflow="verify"), by="ada")
