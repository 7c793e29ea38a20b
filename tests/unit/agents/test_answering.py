"""A run whose requests are left as files: it releases its device, exits with code 5, and continues with the reply."""

from __future__ import annotations

import io
import sys

import pytest
from agent_fakes import TASK, FakeClient
from scripted_models import diagnosis, plan, program

from agents import cli
from agents.answering import amiss, forms_in, waiting_in
from agents.journal import FileJournal, read_trace
from agents.llm import mailbox
from agents.llm.mailbox import waiting_for
from agents.llm.messages import Message, Request
from agents.projection import project
from tests.engines import engine_of

PAUSED = 5


class Client(FakeClient):
    """A client whose device is on this host if `there` is set."""

    there = True

    async def close(self):
        self.calls.append("close")

    async def ready(self):
        if not self.there:
            raise OSError("this host has no GPU")
        return await super().ready()


@pytest.fixture
def client(monkeypatch, tmp_path):
    fake = Client()
    monkeypatch.setattr(cli, "open_verifier", lambda device, data_dir: fake)
    monkeypatch.setattr(mailbox, "POLL_SECONDS", 0.01)
    (tmp_path / "llm.toml").write_text('[profiles.me]\nkind = "mailbox"\nprices = { input = 1.0, output = 10.0 }\n')
    monkeypatch.setenv("STITCHWORK_LLM_PROFILES", str(tmp_path / "llm.toml"))
    (tmp_path / "task.py").write_text(TASK)
    return fake


@pytest.fixture
def run(client, tmp_path):
    def solve(*more: str) -> int:
        return cli.main(["solve", str(tmp_path / "task.py"), "--out", str(tmp_path / "out"), "--quiet", "--no-experience", *more])

    return solve


@pytest.fixture
def begun(run):
    """Starts a run that is paused at its first request."""
    assert run("--llm", "me", "--when-asked", "pause", "--budget-candidates", "2") == PAUSED


def reply(monkeypatch, folder, name: str, text: str | bytes) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text if isinstance(text, bytes) else text.encode())))
    return cli.main(["answer", str(folder), name])


def waiting(folder, capsys) -> list[str]:
    capsys.readouterr()
    assert cli.main(["answer", str(folder)]) == 0
    return [line.split()[0] for line in capsys.readouterr().out.splitlines() if line != "no request waits for a reply"]


def test_a_run_is_answered_request_by_request_and_holds_no_device_between(client, run, begun, monkeypatch, tmp_path, capsys):
    out, answers = tmp_path / "out", iter([plan("s1"), program(1.5), diagnosis("stop")])
    assert client.calls[-1] == "close", "the device is given back"
    purposes, code = [], PAUSED
    while code == PAUSED:
        [name] = waiting(out, capsys)
        page = next((out / "requests").glob(f"*/{name}.md")).read_text()
        assert "## Task" in page and "## Reply" in page
        purposes.append(page.partition("Situation: ")[2].partition("\n")[0])
        before = client.calls.count("verify")
        assert reply(monkeypatch, out, name, next(answers)) == 0
        code = run("--resume")
        if len(purposes) == 1:
            assert client.calls.count("verify") == before, "a plan needs no device"
    assert code == 0 and purposes == ["planner/plan", "coder/first", "verifier/diagnose"]
    summary = project(read_trace(out)[0])
    assert (summary.outcome, summary.spent["calls"]) == ("improved", 3) and waiting(out, capsys) == []
    assert all(span.status == "ok" for span in summary.spans), "a pause is no failure of a step"


def test_the_same_calls_as_without_pauses(client, run, begun, monkeypatch, tmp_path, capsys):
    from test_llm_roles import ScriptedModels, engine

    script = {"planner/plan": [plan("s1")], "coder/first": [program(1.5)], "verifier/diagnose": [diagnosis("stop")]}
    answers = iter([plan("s1"), program(1.5), diagnosis("stop")])
    while True:
        [name] = waiting(tmp_path / "out", capsys)
        reply(monkeypatch, tmp_path / "out", name, next(answers))
        if run("--resume") != PAUSED:
            break
    import asyncio

    from agents.settings import Budget

    straight = engine(ScriptedModels(script), budget=Budget(candidates=2))
    asyncio.run(straight.execute())

    def steps(events):
        kept = ("span.opened", "candidate.proposed", "llm.completed", "decision.made", "diagnosis.made", "run.finished")
        return [(e.kind, e.span, e.payload.get("purpose"), e.payload.get("route"), e.payload.get("sha")) for e in events if e.kind in kept]

    assert steps(read_trace(tmp_path / "out")[0]) == steps(straight.journal.events)


def test_replies_that_cannot_be_it_are_refused_with_a_sentence_and_nothing_is_lost(client, run, begun, monkeypatch, tmp_path, capsys):
    out = tmp_path / "out"
    [name] = waiting(out, capsys)
    for text, said in (
        (" \n", "empty"),
        ('```json\n{"summary": "x"', "cut off"),
        ('{"summary": "x", "steps": [{"id": "s1"', "cut off"),
        (program(1.5), f"This is a program, and {name} asks for a plan"),
        (diagnosis("stop"), "This is a diagnosis"),
        (b"\xff\xfe", "not UTF-8"),
    ):
        assert reply(monkeypatch, out, name, text) == cli.USAGE
        assert said in capsys.readouterr().err
        assert waiting(out, capsys) == [name]
    assert reply(monkeypatch, out, "nowhere-1-abc", plan("s1")) == cli.USAGE
    assert f"there is no request nowhere-1-abc in {out}; waiting: {name}" in capsys.readouterr().err
    assert reply(monkeypatch, out, f"{out}/requests/x/{name}.md", plan("s1")) == 0, "a path names it as well"
    assert reply(monkeypatch, out, name, plan("s2")) == cli.USAGE and "already has a reply" in capsys.readouterr().err
    assert run("--resume") == PAUSED
    [second] = waiting(out, capsys)
    assert second != name and reply(monkeypatch, out, name, plan("s2")) == cli.USAGE
    assert f"{name} is stale: the run has its answer and has continued; waiting: {second}" in capsys.readouterr().err
    assert project(read_trace(out)[0]).plan.steps[0].id == "s1"


def test_a_resume_without_a_reply_waits_again_and_costs_nothing(client, run, begun, tmp_path, capsys):
    out = tmp_path / "out"
    before = waiting(out, capsys)
    assert run("--resume") == PAUSED == run("--resume") and waiting(out, capsys) == before
    events, _ = read_trace(out)
    assert sum(e.kind == "llm.requested" for e in events) == 1 and not any(e.kind == "llm.failed" for e in events)
    summary = project(events)
    assert summary.spent["calls"] == 0 and summary.pause.kind_ == "asked" and before[0] in summary.pause.hint


def test_a_note_that_comes_while_a_request_waits_is_for_the_next_one(client, run, begun, monkeypatch, tmp_path, capsys):
    out = tmp_path / "out"
    [name] = waiting(out, capsys)
    assert cli.main(["note", str(out), "the last dimension is always 4096"]) == 0
    assert run("--resume") == PAUSED and waiting(out, capsys) == [name], "the request that was copied stays the one that is asked"
    assert reply(monkeypatch, out, name, plan("s1")) == 0 and run("--resume") == PAUSED
    [second] = waiting(out, capsys)
    assert "always 4096" in next((out / "requests").glob(f"*/{second}.md")).read_text()


def test_without_its_device_a_run_goes_as_far_as_the_next_verification(client, run, begun, monkeypatch, tmp_path, capsys):
    out = tmp_path / "out"
    client.there = False
    [name] = waiting(out, capsys)
    assert reply(monkeypatch, out, name, plan("s1")) == 0 and run("--resume") == PAUSED
    [second] = waiting(out, capsys)
    assert reply(monkeypatch, out, second, program(1.5)) == 0 and run("--resume") == PAUSED
    summary = project(read_trace(out)[0])
    assert summary.pause.kind_ == "device" and "this host has no GPU" in summary.pause.reason and summary.candidates[0].status == ""
    assert waiting(out, capsys) == [] and client.calls.count("verify") == 0
    client.there = True
    assert run("--resume") == PAUSED and len(waiting(out, capsys)) == 1
    assert project(read_trace(out)[0]).candidates[0].status == "passed"


def test_tokens_of_a_person_are_estimated_marked_and_priced(client, run, begun, monkeypatch, tmp_path, capsys):
    out = tmp_path / "out"
    [name] = waiting(out, capsys)
    reply(monkeypatch, out, name, plan("s1"))
    run("--resume")
    events, _ = read_trace(out)
    done = next(e for e in events if e.kind == "llm.completed")
    assert done.payload["counted"] == "estimated" and done.payload["usage"]["input_tokens"] > 500 and done.payload["usage"]["output_tokens"] > 10
    spent = done.payload["usage"]
    assert done.payload["dollars"] == pytest.approx((spent["input_tokens"] + 10 * spent["output_tokens"]) / 1e6)
    summary = project(events)
    assert summary.spent["tokens"] == spent["input_tokens"] + spent["output_tokens"] and summary.usage[0].estimated == 1
    assert cli.main(["show", str(out)]) == 0 and "~" in capsys.readouterr().out


def test_forms_of_replies():
    assert forms_in(program(1.5)) == {"program"} and forms_in(plan("s1")) == {"plan"} and forms_in("prose") == set()
    assert forms_in("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE") == {"program"}
    asked = Request(messages=[Message(role="user", content="Asked: coder/first\n")], purpose="coder/reply")
    waits = waiting_for("me", asked, key="a#1", run="r")
    assert "asks for a program" in amiss(waits, plan("s1")) and amiss(waits, program(1.5)) == "" and amiss(waits, "I would rather not.") == ""
    assert amiss(waits, "````python\nclass ModelNew:\n    s = '''\n```\n'''\n````") == "", "a longer fence may hold a shorter one"


@pytest.mark.asyncio
async def test_requests_of_before_a_fork_wait_for_nobody(client, tmp_path):
    from agents.llm.mailbox import FileMailbox

    journal = FileJournal(tmp_path / "run")
    (tmp_path / "run/requests").mkdir(parents=True)
    other = waiting_for("me", Request(messages=[Message(role="user", content="x")], purpose="coder/first"), key="a#1", run="another run")
    await FileMailbox(tmp_path / "run/requests").put(other)
    assert await waiting_in(tmp_path / "run", await journal.load()) == []


@pytest.mark.asyncio
async def test_where_one_worker_asks_what_the_others_are_at_is_finished_and_kept(monkeypatch, tmp_path):
    import asyncio

    from agent_fakes import settings

    from agents.journal import MemoryJournal
    from agents.llm.mailbox import FileMailbox
    from agents.llm.models import Models
    from agents.local import LocalVerifier
    from agents.run import Finish

    monkeypatch.setattr(mailbox, "POLL_SECONDS", 0.01)
    (tmp_path / "llm.toml").write_text('[profiles.me]\nkind = "mailbox"\n')
    models = Models({"STITCHWORK_LLM_PROFILES": str(tmp_path / "llm.toml")}, FileMailbox(tmp_path / "requests", tmp_path), wait=False)
    client, journal = Client(), MemoryJournal()
    begun = asyncio.Event()

    async def slow(job):
        begun.set()
        await asyncio.sleep(0.3)

    client.before = slow

    async def workflow(run) -> Finish:
        async def asks():
            async with run.span("asks", "Ask") as span:
                await begun.wait()
                await span.ask("coder", "me", Request(messages=[Message(role="user", content="x")], purpose="coder/first"))

        async def verifies():
            async with run.span("verifies", "Verify") as span:
                await span.verify("# speed 1.5", 1, "quick")

        await run.parallel(asks(), verifies())
        return Finish("matched", "done")

    engine = engine_of(journal, LocalVerifier(journal, client, "cpu"), settings(), TASK, "t", workflow=workflow, models=models, on_pause="stop")
    summary = await asyncio.wait_for(engine.execute(), 10)
    assert summary.state == "paused" and summary.pause.kind_ == "asked"
    assert [e.kind for e in journal.events if e.kind == "verification.finished"], "it was waited for, and counts"
