"""Searches everything that a run leaves behind for a planted key, with a server that repeats the key wherever it can."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import traceback
from pathlib import Path

import pytest
from agent_fakes import TASK, FakeClient, settings
from llm_profiles import KEY, models, profile
from llm_server import DONE, chunk, event, reply, serving, stream, usage
from model_fakes import AskingRoles, answer

from agents.events import NewEvent
from agents.journal import FileJournal
from agents.llm import cli, server
from agents.llm.errors import ModelFailure
from agents.llm.mailbox import waiting_for
from agents.llm.messages import Message, Request
from agents.local import LocalVerifier
from tests.engines import engine_of

SHAPES = (KEY, base64.b64encode(KEY.encode()).decode().rstrip("="), KEY[:24])


def found_in(text: str) -> bool:
    return any(shape in text for shape in SHAPES)


def files_with_the_key(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and found_in(path.read_bytes().decode("latin-1") + path.name)]


def indiscreet(*, statuses: tuple[str, ...] = ()):
    """Answers like the model in `model_fakes`, but repeats in each answer what it was sent; returns these statuses first."""

    def fault(status: str):
        async def say(asked, writer):
            told = {"error": {"message": f"{status}: your headers were {json.dumps(asked.headers)}", "headers": asked.headers}}
            await reply(told, status, X_Echo=asked.headers["authorization"])(asked, writer)

        return say

    async def broken(asked, writer):
        await stream(chunk(asked.headers["authorization"]), event({"error": {"message": asked.headers["authorization"], "code": 500}}))(asked, writer)

    async def good(asked, writer):
        said = answer(Request(messages=[Message.model_validate(m) for m in asked.body["messages"]], purpose="coder/write"))
        thought = {"reasoning_content": f"I was sent {asked.headers['authorization']}"}
        pieces = [
            chunk(delta=thought),
            chunk(said),
            chunk(f"\n# {asked.headers['authorization']}"),
            chunk(finish="stop", model=asked.headers["authorization"]),
        ]
        await stream(*pieces, usage(), DONE)(asked, writer)

    return [*(fault(status) for status in statuses), broken, good]


@pytest.mark.asyncio
async def test_a_run_leaves_no_trace_of_the_key(tmp_path, monkeypatch, caplog, capfd):
    async def no_wait(_: float) -> None: ...

    monkeypatch.setattr(server, "sleep", no_wait)
    caplog.set_level(logging.DEBUG)
    journal = FileJournal(tmp_path / "run")
    async with serving(*indiscreet(statuses=("500 X", "429 X", "401 X"))) as wire:
        text = profile("fast", base_url=wire.url, prices={"input": 1.0, "output": 2.0})
        found = models(tmp_path, text, profile("fake", kind="cassette", file="tape.jsonl", record="fast"))
        running = asyncio.create_task(
            engine_of(
                journal, LocalVerifier(journal, FakeClient(), "cpu"), settings(), TASK, "softmax", roles=AskingRoles(3).roles(), models=found
            ).execute()
        )
        while not any(e.kind == "run.paused" for e in await journal.load()):  # from the 401 response
            await asyncio.sleep(0.05)
        resume = {"action": "resume", "by": "somebody"}
        await FileJournal(tmp_path / "run", owner=False).append([NewEvent(kind="control.requested", agent="person", payload=resume)])
        summary = await asyncio.wait_for(running, 30)
        assert all(asked.headers["authorization"] == f"Bearer {KEY}" for asked in wire.asked) and len(wire.asked) > 6
    assert summary.spent["calls"] > 3
    await found.store.put(waiting_for("me", Request(messages=[Message(role="user", content="x")]), key="a#1", run="r"))
    assert await asyncio.to_thread(cli.export, tmp_path / "run", tmp_path / "exported.jsonl") == 0
    assert "[key]" in (tmp_path / "exported.jsonl").read_text(), "the server did repeat it"
    assert files_with_the_key(tmp_path) == []
    printed = "".join(capfd.readouterr())
    assert not found_in(printed) and not found_in(caplog.text) and not found_in(summary.model_dump_json())


@pytest.mark.asyncio
@pytest.mark.parametrize("status", ["401 X", "400 X", "404 X", "503 X", "302 X"])
async def test_no_exception_shows_the_key(tmp_path, monkeypatch, status):
    async def no_wait(_: float) -> None: ...

    monkeypatch.setattr(server, "sleep", no_wait)
    async with serving(*indiscreet(statuses=(status,) * 3)) as wire:
        found = models(tmp_path, profile(base_url=wire.url))
        asked = Request(messages=[Message(role="user", content="x")])

        async def on_delta(_): ...

        with pytest.raises(ModelFailure) as failure:
            await found.ask("fast", asked, key="a#1", run="r", on_delta=on_delta)
    error = failure.value
    said = "".join(traceback.format_exception(error)) + repr(error) + str(error.__context__) + str(error.__cause__) + error.hint
    assert not found_in(said) and not found_in(repr(vars(error)))


def test_list_and_check_do_not_show_the_key(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PLANTED_KEY", KEY)
    models(tmp_path, profile(base_url="http://127.0.0.1:9/v1"))
    cli.show_list(as_json=True), cli.show_list(), cli.check(), cli.check(as_json=True)
    assert not found_in("".join(capfd.readouterr()))
