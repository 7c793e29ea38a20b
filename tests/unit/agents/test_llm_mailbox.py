"""The mailbox: a request waits as a file, and the reply is a file from a person."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from llm_profiles import Heard, ask, models, profile, request

from agents.llm import mailbox
from agents.llm.errors import ModelFailure
from agents.llm.mailbox import FileMailbox, NotWaiting, waiting_for

pytestmark = pytest.mark.asyncio
ASKED = request("Write a kernel.", purpose="coder/write")


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(mailbox, "POLL_SECONDS", 0.01)


@pytest.fixture
def found(tmp_path):
    return models(tmp_path, profile("me", kind="mailbox"))


@contextlib.asynccontextmanager
async def asking(found, heard=None, **more):
    """Yields a request in flight, and its file in the mailbox."""
    task = asyncio.create_task(ask(found, heard, name="me", asked=ASKED, **{"key": "step-1/attempt-2#3", "run": "run-1", **more}))
    try:
        async with asyncio.timeout(5):
            while not (waiting := await found.store.list()) and not task.done():
                await asyncio.sleep(0.01)
        yield task, waiting
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_reply_by_file(found, tmp_path):
    heard = Heard()
    async with asking(found, heard) as (task, [waiting]):
        assert (waiting.run, waiting.key, waiting.profile, waiting.request) == ("run-1", "step-1/attempt-2#3", "me", ASKED)
        folder = tmp_path / "mailbox" / "run-1"
        page = (folder / f"{waiting.id.split('/')[1]}.md").read_text()
        assert "You are brief." in page and "Write a kernel." in page and "coder/write" in page and ".reply.md" in page
        (folder / f"{waiting.id.split('/')[1]}.reply.md").write_bytes("Hier: größer.\r\n".encode())
        got = await asyncio.wait_for(task, 5)
    assert got.text == heard.text == "Hier: größer.\n" and got.dollars is None and got.finish == "stop"
    assert got.counted == "estimated" and got.usage.output_tokens == 5, "what a chat would have counted, about"
    assert await found.store.list() == []


async def test_a_reply_by_the_store(found):
    async with asking(found) as (task, [waiting]):
        await found.store.answer(waiting.id, "Done.")
        assert (await asyncio.wait_for(task, 5)).text == "Done."
    with pytest.raises(NotWaiting):
        await found.store.answer(waiting.id, "Twice.")


async def test_a_reply_that_is_still_being_written_is_waited_for(found, tmp_path):
    async with asking(found) as (_, [waiting]):
        pass
    store = FileMailbox(tmp_path / "mailbox")
    await store.put(waiting)
    path = tmp_path / "mailbox" / f"{waiting.id}.reply.txt"
    path.write_text("")
    assert [await store.reply(waiting.id) for _ in range(3)] == [None] * 3
    path.write_text("Half")
    assert await store.reply(waiting.id) is None
    path.write_text("Half and half")
    assert await store.reply(waiting.id) is None
    assert await store.reply(waiting.id) == "Half and half"


async def test_a_cancelled_request_vanishes(found, tmp_path):
    async with asking(found) as (task, [waiting]):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await found.store.list() == [] and not list((tmp_path / "mailbox").rglob("*.*"))
        with pytest.raises(NotWaiting):
            await found.store.answer(waiting.id, "Too late.")


async def test_after_a_crash_the_same_request_waits_once_and_a_reply_given_meanwhile_counts(found, tmp_path):
    waiting = waiting_for("me", ASKED, key="step-1/attempt-2#3", run="run-1")
    await found.store.put(waiting)  # from an orchestrator that was killed
    await found.store.answer(waiting.id, "While you were away.")
    async with asking(found) as (task, _):
        assert (await asyncio.wait_for(task, 5)).text == "While you were away."
    async with asking(found) as (task, _):  # and once more if the orchestrator was killed before it recorded the answer
        assert (await asyncio.wait_for(task, 5)).text == "While you were away."


async def test_another_request_of_the_same_key_is_another_letter():
    one = waiting_for("me", ASKED, key="a#1", run="r")
    assert one.id == waiting_for("me", ASKED, key="a#1", run="r").id
    assert len({one.id} | {waiting_for("me", ASKED, key="a#2", run="r").id, waiting_for("me", request("x"), key="a#1", run="r").id}) == 3


async def test_the_list_is_by_run_and_oldest_first(found):
    for run in ("r1", "r2"):
        await found.store.put(waiting_for("me", ASKED, key="a#1", run=run))
    assert [w.run for w in await found.store.list("r2")] == ["r2"] and len(await found.store.list()) == 2


async def test_names_from_outside_do_not_leave_the_folder(found, tmp_path):
    waiting = waiting_for("me", ASKED, key="../../etc/passwd#1", run="../r")
    await found.store.put(waiting)
    assert all((tmp_path / "mailbox") in path.parents for path in tmp_path.rglob("*.json"))
    for name in ("../../x/y", "a/../../b", "x"):
        with pytest.raises(NotWaiting):
            await found.store.answer(name, "text")


async def test_a_reply_that_is_no_text(found, tmp_path):
    async with asking(found) as (task, [waiting]):
        (tmp_path / "mailbox" / f"{waiting.id}.reply.md").write_bytes(b"\xff\xfe")
        with pytest.raises(ModelFailure, match="UTF-8"):
            await asyncio.wait_for(task, 5)


async def test_a_folder_that_cannot_be_used(found, tmp_path):
    (tmp_path / "mailbox").write_text("a file in the way")
    with pytest.raises(ModelFailure) as failure:
        await ask(found, name="me")
    assert failure.value.kind == "configuration" and "mailbox" in failure.value.message


async def test_nobody_counts_what_a_person_reads(found):
    assert found.estimate("me", ASKED) == {"calls": 1}


async def test_a_tokenizer_counts_what_a_person_reads_and_writes(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "Done": 1, ".": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "words.json"))
    found = models(tmp_path, profile("me", kind="mailbox", tokenizer="words.json", prices={"input": 1.0, "output": 1e6}))
    async with asking(found) as (task, [waiting]):
        await found.store.answer(waiting.id, "Done.")
        got = await asyncio.wait_for(task, 5)
    assert (got.counted, got.usage.output_tokens) == ("tokenizer", 2) and got.dollars == pytest.approx(2, abs=0.01)
    found = models(tmp_path, profile("me", kind="mailbox", tokenizer="absent.json"))
    async with asking(found, run="another") as (task, [waiting]):
        await found.store.answer(waiting.id, "Done.")
        with pytest.raises(ModelFailure, match="absent.json"):
            await asyncio.wait_for(task, 5)
