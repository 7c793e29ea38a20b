"""A run that is replayed from its own trace."""

from __future__ import annotations

import asyncio

import pytest
from agent_fakes import TASK, FakeClient, settings
from model_fakes import AskingRoles, FakeModels, asking

from agents.events import NewEvent
from agents.journal import MemoryJournal, write_trace
from agents.llm import cli
from agents.local import LocalVerifier
from agents.replaying import NotReplayable, first_difference, replay
from agents.run import Finish
from agents.workflows import FUNCTIONS
from tests.engines import engine_of

pytestmark = pytest.mark.asyncio


async def recorded(programs: int = 3) -> MemoryJournal:
    journal = MemoryJournal()
    engine = engine_of(
        journal, LocalVerifier(journal, FakeClient(), "cpu"), settings(), TASK, "softmax", roles=AskingRoles(programs).roles(), models=FakeModels(),
    )  # fmt: skip
    await engine.execute()
    return journal


async def test_the_same_roles_do_the_same():
    journal = await recorded()
    outcome = await replay(journal, AskingRoles(3).roles())
    asked = [e for e in journal.events if e.kind == "llm.completed"]
    assert outcome.difference == "" and outcome.exchanges == len(asked) > 5 and outcome.verifications >= 4
    assert outcome.journal.events[-1].payload == journal.events[-1].payload and outcome.journal.run == journal.run
    spent = [[e.payload["spent"] for e in j.events if e.kind == "budget.updated"][-1] for j in (journal, outcome.journal)]
    assert {k: v for k, v in spent[0].items() if k != "seconds"} == {k: v for k, v in spent[1].items() if k != "seconds"}


async def test_it_stops_where_another_prompt_would_be_asked():
    class Politer(AskingRoles):
        async def advise(self, span, situation, attempt):
            await span.ask("verifier", "fake", asking("verifier/advise", "Please:\n" + attempt.edit.source))
            raise AssertionError("the model must not be asked")

    outcome = await replay(await recorded(), Politer(3).roles())
    assert "verifier/advise at step-1/attempt-1#" in outcome.difference and "now 'Please:'" in outcome.difference
    assert "recorded '# speed" in outcome.difference


@pytest.mark.slow
async def test_it_says_where_another_decision_is_made():
    outcome = await replay(await recorded(programs=3), AskingRoles(1).roles())
    assert "decision.made" in outcome.difference and "route was 'optimise' and is 'stop'" in outcome.difference
    outcome = await replay(await recorded(programs=1), AskingRoles(3).roles())
    assert outcome.difference  # the replay makes more requests than were recorded


async def test_another_program_of_the_same_reply_is_seen():
    class Other(AskingRoles):
        async def write(self, span, situation, parent, advice):
            edit = await super().write(span, situation, parent, advice)
            return edit.__class__(edit.source, "another title", *list(vars(edit).values())[2:])

    outcome = await replay(await recorded(), Other(3).roles())
    assert "candidate.proposed" in outcome.difference and "is 'another title'" in outcome.difference


async def test_a_run_that_was_cut_off_is_the_same_as_far_as_it_goes():
    whole = await recorded()
    cut = next(e.seq for e in whole.events if e.kind == "llm.completed" and e.span.startswith("step"))
    journal = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts)
    outcome = await replay(journal, AskingRoles(3).roles())
    assert outcome.difference == "" and outcome.exchanges == sum(e.kind == "llm.completed" for e in journal.events)


async def test_what_cannot_be_played_is_said():
    with pytest.raises(NotReplayable, match="does not begin"):
        await replay(MemoryJournal())
    journal = await recorded()
    await journal.append([NewEvent(kind="run.forked", payload={"from": {"run": "x", "seq": 3}})])
    with pytest.raises(NotReplayable, match="fork"):
        await replay(journal)


async def test_events_beside_the_order_are_no_difference():
    journal = await recorded()
    beside = [e for e in journal.events if e.kind not in ("message.delta", "budget.updated", "verification.stage")]
    assert first_difference(journal.events, beside) == ""


async def test_workers_in_parallel_meet_as_they_did(monkeypatch):
    """When replies arrive in a different order from their requests, that order decides which program gets which number."""

    class Slow(FakeModels):
        async def ask(self, profile, request, *, key, run, on_delta):
            await asyncio.sleep({"w0": 0.06, "w1": 0.0, "w2": 0.03}.get(key.split("#")[0], 0))
            return await super().ask(profile, request, key=key, run=run, on_delta=on_delta)

    async def workflow(run):
        async def one(index):
            async with run.span(f"w{index}", f"Worker {index}", "coder") as span:
                text = (await span.ask("coder", "fake", asking("coder/write", f"{index}"))).text
                await span.propose(f"# {index}\n", parent=None, title=text[:20], step="", changes="", strategy="")

        await run.parallel(*(one(i) for i in range(3)))
        return Finish("failed", "that was all")

    journal = MemoryJournal()
    verifier = LocalVerifier(journal, FakeClient(), "cpu")
    await engine_of(journal, verifier, settings(), TASK, "softmax", models=Slow(), workflow=workflow).execute()
    numbers = {e.span: e.payload["candidate"] for e in journal.events if e.kind == "candidate.proposed"}
    assert numbers == {"w1": 1, "w2": 2, "w0": 3}

    monkeypatch.setitem(FUNCTIONS, "stitch", workflow)
    outcome = await replay(journal)
    assert outcome.difference == ""
    assert {e.span: e.payload["candidate"] for e in outcome.journal.events if e.kind == "candidate.proposed"} == numbers


@pytest.mark.slow
async def test_the_command_line(tmp_path, capsys):
    journal = await recorded()
    write_trace(tmp_path / "run", journal.events, list(journal.artefacts.items()))
    assert await asyncio.to_thread(cli.play, tmp_path, None) == 2 and "holds no trace" in capsys.readouterr().err
    code = await asyncio.to_thread(cli.play, tmp_path / "run", tmp_path / "again")
    said = capsys.readouterr().out
    assert code == 1 and said.startswith("differs: event ")  # the compiler does not play those roles
    assert (tmp_path / "again" / "trace.jsonl").exists()
    assert await asyncio.to_thread(cli.play, tmp_path / "run", tmp_path / "again") == 2
