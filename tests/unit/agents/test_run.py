"""The engine and its workflows with a fake verifier."""

from __future__ import annotations

import asyncio

import pytest
from agent_fakes import TASK, FakeClient, FakeRoles, settings

from agents.events import NewEvent
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.projection import project
from agents.run import Engine
from agents.settings import Budget
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio
PROGRAMS = ["# status build_failed\n# message expected ';'", "# speed 1.2", "# speed 1.6", "# status wrong_result", "# speed 2.0"]


def engine(journal, client, programs=PROGRAMS, program_source=None, **changes) -> Engine:
    chosen = settings(**changes)
    roles = FakeRoles(programs).roles()
    return engine_of(journal, LocalVerifier(journal, client, "cpu"), chosen, TASK, "softmax", program_source=program_source, roles=roles)


def content(events) -> list[tuple]:
    """Returns a trace without the parts that may differ after an interruption: times, attempts at a job, spending, and the interruption itself."""
    kept = []
    for event in events:
        if event.kind in ("verification.queued", "verification.stage", "budget.updated", "run.resumed"):
            continue
        payload = {k: v for k, v in event.payload.items() if k not in ("seconds", "of")}
        kept.append((event.kind, event.span, event.agent, payload))
    return kept


async def test_a_run_from_start_to_confirmation():
    journal, client = MemoryJournal(), FakeClient()
    summary = await engine(journal, client).execute()
    assert (summary.state, summary.outcome, summary.best) == ("finished", "improved", 5)
    assert summary.speedup.ratio == pytest.approx(2.0)
    assert [c.status for c in summary.candidates] == ["build_failed", "passed", "passed", "wrong_result", "passed"]
    assert [c.parent for c in summary.candidates] == [None, 1, 2, 3, 4]
    assert summary.candidate(5).tier == "full" and summary.candidate(3).tier == "quick"
    assert summary.open_spans() == []
    paths = [span.path for span in summary.spans]
    assert paths[:5] == ["admit", "capture", "reference", "plan", "step-1"]
    assert "step-1/attempt-2" in paths and paths[-1] == "confirm"
    assert summary.reference_timeline and summary.candidate(2).timeline and not summary.candidate(1).timeline
    realised = [d.made.realised for d in summary.decisions if d.made.route == "optimise"]
    assert realised[0] == pytest.approx(1.6 / 1.2)
    assert project(journal.events).model_dump() == summary.model_dump()


async def test_messages_are_streamed_and_completed():
    journal = MemoryJournal()
    await engine(journal, FakeClient()).execute()
    deltas: dict[str, str] = {}
    for event in journal.events:
        if event.kind == "message.delta":
            assert event.payload["offset"] == len(deltas.get(event.payload["message"], ""))
            deltas[event.payload["message"]] = deltas.get(event.payload["message"], "") + event.payload["text"]
        if event.kind == "message.completed":
            assert deltas[event.payload["message"]] == event.payload["text"]
    assert any(e.agent == "coder" for e in journal.events if e.kind == "message.completed")


@pytest.mark.slow
async def test_killed_after_any_event_it_resumes_to_the_same_trace():
    whole, client = MemoryJournal(), FakeClient()
    await engine(whole, client).execute()
    wanted, calls = content(whole.events), len(client.calls)
    for cut in range(len(whole.events) + 1):
        journal = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts)
        client = FakeClient()
        summary = await engine(journal, client).execute()
        done = sum(e.kind == "verification.finished" for e in whole.events[:cut])
        assert summary.outcome == "improved" and summary.best == 5, cut
        assert len(client.calls) == calls - done, f"cut at {cut}: no finished job again"
        assert content(journal.events) == wanted, f"cut at {cut}"
        assert project(journal.events).model_dump() == summary.model_dump()
        if cut not in (0, len(whole.events)):
            assert [e.kind for e in journal.events].count("run.resumed") == 1


async def test_killed_in_the_middle_of_a_job_only_that_job_is_repeated():
    whole = FakeClient()
    await engine(MemoryJournal(), whole).execute()
    journal, client = MemoryJournal(), FakeClient()
    reached = asyncio.Event()

    async def hang(job):
        if len(client.calls) == 6:
            reached.set()
            await asyncio.Event().wait()

    client.before = hang
    task = asyncio.create_task(engine(journal, client).execute())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert project(journal.events).state == "running"
    before, client.before = len(client.calls), None
    summary = await engine(journal, client).execute()
    assert summary.outcome == "improved"
    assert len(client.calls) == len(whole.calls) + 1 and before == 6
    assert [e.payload["attempt"] for e in journal.events if e.kind == "verification.queued"].count(2) == 1


async def test_cancel_ends_in_a_named_outcome_with_all_spans_closed():
    journal, client = MemoryJournal(), FakeClient()

    async def cancel(job):
        if len(client.calls) == 7:
            await journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "cancel", "by": "ada"})])
            await asyncio.Event().wait()

    client.before = cancel
    summary = await asyncio.wait_for(engine(journal, client).execute(), 5)
    assert (summary.state, summary.outcome) == ("finished", "cancelled")
    assert "ada" in summary.reason and summary.best == 2 and summary.speedup is None
    assert summary.open_spans() == []
    assert journal.events[-1].kind == "run.finished"
    assert summary.model_dump() == (await engine(journal, client).execute()).model_dump(), "a finished run stays as it is"


async def test_cancelled_before_it_began():
    journal, client = MemoryJournal(), FakeClient()
    await journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "cancel", "by": "ada"})])
    summary = await engine(journal, client).execute()
    assert (summary.state, summary.outcome, client.calls) == ("finished", "cancelled", [])


async def test_pause_waits_and_resume_goes_on():
    journal, client = MemoryJournal(), FakeClient()
    paused = asyncio.Event()

    async def pause(job):
        if len(client.calls) == 5:
            await journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "pause", "by": "ada"})])
            paused.set()

    client.before = pause
    task = asyncio.create_task(engine(journal, client).execute())
    await paused.wait()
    while project(journal.events).state != "paused":
        await asyncio.sleep(0.01)
    calls = len(client.calls)
    await asyncio.sleep(0.05)
    assert len(client.calls) == calls and not task.done()
    await journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "resume", "by": "ada"})])
    summary = await asyncio.wait_for(task, 5)
    assert summary.outcome == "improved"
    kinds = [e.kind for e in journal.events]
    assert kinds.count("run.paused") == 1 and kinds.count("run.resumed") == 1


async def test_the_budget_of_programs_ends_the_search_but_not_the_confirmation():
    journal = MemoryJournal()
    summary = await engine(journal, FakeClient(), budget=Budget(candidates=3)).execute()
    assert summary.outcome == "improved" and summary.best == 3
    assert len(summary.candidates) == 3 and "3 programs" in summary.reason
    assert summary.spent["candidates"] == 3
    refusal = next(i for i, e in enumerate(journal.events) if e.kind == "effect.completed")
    for cut in (refusal, refusal + 1, refusal + 2):
        resumed = MemoryJournal(journal.run, journal.events[:cut], journal.artefacts)
        assert (await engine(resumed, FakeClient(), budget=Budget(candidates=3)).execute()).reason == summary.reason


async def test_an_only_program_is_measured_in_tier_full_at_once():
    whole, client = MemoryJournal(), FakeClient()
    summary = await engine(whole, client, PROGRAMS[1:], budget=Budget(candidates=1)).execute()
    assert (summary.outcome, summary.best, summary.candidate(1).tier) == ("improved", 1, "full") and "1 program is spent" in summary.reason
    assert client.calls.count("verify") == 1 and summary.spans[-1].title == "The only program"
    for cut in range(len(whole.events) + 1):
        journal = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts)
        await engine(journal, FakeClient(), PROGRAMS[1:], budget=Budget(candidates=1)).execute()
        assert content(journal.events) == content(whole.events), f"cut at {cut}"


async def test_an_only_program_that_fails_is_no_result():
    journal, client = MemoryJournal(), FakeClient()
    summary = await engine(journal, client, PROGRAMS[3:], budget=Budget(candidates=1)).execute()
    assert (summary.outcome, summary.best) == ("out_of_budget", None) and "wrong result" in summary.reason
    assert client.calls.count("verify") == 1


async def test_where_the_budget_is_raised_the_first_program_has_to_hold_like_any_other():
    journal, client = MemoryJournal(), FakeClient()

    async def more(job):
        if job.kind == "verify" and "raise" not in client.calls:
            client.calls.append("raise")
            payload = {"action": "raise-budget", "by": "ada", "limits": {"candidates": 2}}
            await journal.append([NewEvent(kind="control.requested", agent="person", payload=payload)])

    client.before = more
    summary = await engine(journal, client, ["# speed 2.0", "# speed 1.2"], budget=Budget(candidates=1)).execute()
    assert (summary.outcome, summary.best, len(summary.candidates)) == ("improved", 1, 2)
    assert client.calls.count("verify") == 3, "both, and the first once more"


async def test_a_raised_budget_counts_at_once():
    journal, client = MemoryJournal(), FakeClient()

    async def more(job):
        if client.calls.count("verify") == 2 and len(client.calls) == 5:
            payload = {"action": "raise-budget", "by": "ada", "limits": {"candidates": 5}}
            await journal.append([NewEvent(kind="control.requested", agent="person", payload=payload)])

    client.before = more
    summary = await engine(journal, client, budget=Budget(candidates=2)).execute()
    assert summary.best == 5 and summary.limits["candidates"] == 5


async def test_spent_verifier_time_ends_the_run_with_its_name():

    async def slow(job):
        if job.kind == "verify":
            await asyncio.sleep(0.06)

    for programs, best in ((PROGRAMS, None), (PROGRAMS[1:], 1)):
        journal, client = MemoryJournal(), FakeClient()
        client.before = slow
        summary = await engine(journal, client, programs, budget=Budget(verifier_seconds=0.05)).execute()
        assert (summary.outcome, summary.best) == ("out_of_budget", best) and "verifier time" in summary.reason
        assert client.calls.count("verify") == 1, "the call in flight may overshoot, no further one"


async def test_the_target_and_a_plateau_end_the_search():
    summary = await engine(MemoryJournal(), FakeClient(), target=1.5).execute()
    assert summary.best == 3 and "target of 1.5x is reached" in summary.reason
    flat = ["# speed 1.5"] * 8
    summary = await engine(MemoryJournal(), FakeClient(), programs=flat).execute()
    assert len(summary.candidates) == 4 and "plateau" in summary.reason


async def test_not_faster_is_matched_and_nothing_right_is_failed():
    summary = await engine(MemoryJournal(), FakeClient(), programs=["# speed 0.9"]).execute()
    assert (summary.outcome, summary.best) == ("matched", 1)
    summary = await engine(MemoryJournal(), FakeClient(), programs=["# status crashed"] * 9).execute()
    assert (summary.outcome, summary.best) == ("failed", None)
    assert "5 repairs in a row" in summary.reason and len(summary.candidates) == 6


async def test_an_unsound_task_is_refused_with_its_line():
    journal = MemoryJournal()
    summary = await engine(journal, FakeClient(admission_ok=False)).execute()
    assert summary.outcome == "failed" and "line 3: forward never returns" in summary.reason
    assert summary.errors and summary.open_spans() == []
    assert any("end it" in e.payload["text"] for e in journal.events if e.kind == "message.completed")


async def test_the_hosts_fault_is_tried_once_more():
    client = FakeClient()
    client.errors = ["the judge died"]
    summary = await engine(MemoryJournal(), client).execute()
    assert summary.outcome == "improved" and "the judge died" in summary.errors[0]
    client = FakeClient()
    client.errors = ["the judge died"] * 2
    summary = await engine(MemoryJournal(), client).execute()
    assert summary.outcome == "failed" and "the judge died" in summary.reason


async def test_no_run_ends_for_want_of_a_profile():
    client = FakeClient()

    async def fail(job):
        client.errors = ["no profiler"] if job.kind == "profile" else []

    client.before = fail
    summary = await engine(MemoryJournal(), client).execute()
    assert summary.outcome == "improved" and summary.candidate(5).profile is None
    assert all("no profiler" in error for error in summary.errors) and summary.errors


async def test_a_defect_of_ours_ends_in_failed_with_what_was_kept():
    class Broken(FakeRoles):
        async def advise(self, span, situation, attempt):
            if attempt.number == 3:
                raise KeyError("groups")
            return await super().advise(span, situation, attempt)

    journal = MemoryJournal()
    run = engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), settings(), TASK, "softmax", roles=Broken(PROGRAMS).roles())
    summary = await run.execute()
    assert (summary.outcome, summary.best) == ("failed", 3)
    error = next(e for e in journal.events if e.kind == "error")
    assert "KeyError" in error.payload["message"] and error.payload["where"].startswith("step-") and error.payload["kept"]
    assert summary.open_spans() == []


async def test_who_lost_the_lease_writes_nothing_more():
    journal, client = MemoryJournal(), FakeClient()

    async def lose(job):
        if len(client.calls) == 4:
            journal.current_epoch += 1

    client.before = lose
    await asyncio.wait_for(engine(journal, client).execute(), 5)
    assert project(journal.events).state == "running"
    assert journal.events[-1].kind == "verification.queued"


async def test_another_version_of_the_workflow_does_not_continue_a_foreign_trace():
    whole = MemoryJournal()
    await engine(whole, FakeClient()).execute()
    cut = next(i for i, e in enumerate(whole.events) if e.kind == "plan.proposed")
    events = [e.model_copy(update={"kind": "artefact.attached"}) if i == cut else e for i, e in enumerate(whole.events[: cut + 1])]
    journal = MemoryJournal(whole.run, events, whole.artefacts)
    summary = await engine(journal, FakeClient()).execute()
    assert summary.outcome == "failed" and "TraceDiverged" in summary.errors[0]


async def test_a_persons_own_program():
    journal, client = MemoryJournal(), FakeClient()
    summary = await engine(journal, client, workflow="verify", program_source="# speed 1.4").execute()
    assert (summary.outcome, summary.best, summary.candidates[0].tier) == ("improved", 1, "full")
    assert client.calls == ["admit", "verify", "profile"] and summary.candidates[0].timeline
    summary = await engine(MemoryJournal(), FakeClient(), workflow="verify", program_source="# status wrong_result").execute()
    assert summary.outcome == "failed" and "wrong result" in summary.reason


async def test_a_quick_look_at_a_persons_own_program():
    journal, client = MemoryJournal(), FakeClient()
    summary = await engine(journal, client, workflow="verify", tier="quick", program_source="# speed 1.4").execute()
    assert (summary.outcome, summary.candidates[0].tier, journal.events[0].payload["tier"]) == ("improved", "quick", "quick")
    assert client.calls == ["admit", "verify"] and "no confirmed result" in summary.reason


async def test_an_inconclusive_measurement_is_repeated_once():
    client = FakeClient()
    summary = await engine(MemoryJournal(), client, workflow="verify", program_source="# status inconclusive").execute()
    assert summary.outcome == "failed" and client.calls.count("verify") == 2
