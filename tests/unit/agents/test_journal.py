from __future__ import annotations

import asyncio
import json

import pytest

from agents.events import MAX_PAYLOAD_BYTES, NewEvent
from agents.journal import FileJournal, PayloadTooLarge, TraceDamaged, read_trace, references, write_trace
from agents.ports import LeaseLost

pytestmark = pytest.mark.asyncio


def said(text: str) -> NewEvent:
    return NewEvent(kind="message.completed", span="plan/x", agent="planner", payload={"message": "plan#1", "text": text})


async def test_appends_are_numbered_without_gaps_and_survive(tmp_path):
    journal = FileJournal(tmp_path)
    first = await journal.append([said("a"), said("b")])
    second = await journal.append([said("line\nbreak \u2028 and \r")])
    assert [e.seq for e in first + second] == [1, 2, 3]
    assert first[0].parent == "plan" and first[0].run == journal.run
    again = FileJournal(tmp_path)
    assert await again.load() == first + second and again.run == journal.run
    assert await again.since(2) == second


async def test_what_no_journal_can_keep_is_replaced_character_for_character(tmp_path):
    journal = FileJournal(tmp_path)
    (event,) = await journal.append([NewEvent(kind="note.added", payload={"text": "a\0b\ud83d!", "list": ["\udc00", 1]})])
    assert event.payload == {"text": "a\ufffdb\ufffd!", "list": ["\ufffd", 1]} and await FileJournal(tmp_path).load() == [event]


async def test_a_torn_last_line_is_cut_off(tmp_path):
    journal = FileJournal(tmp_path)
    await journal.append([said("a"), said("b")])
    path = tmp_path / "trace.jsonl"
    whole = path.read_bytes()
    for cut in range(len(whole) - 1, len(whole) - 40, -3):
        path.write_bytes(whole[:cut])
        again = FileJournal(tmp_path)
        assert [e.payload["text"] for e in await again.load()] == ["a"]
        assert [e.seq for e in await again.append([said("c")])] == [2]


async def test_a_gap_or_garbage_is_named(tmp_path):
    journal = FileJournal(tmp_path)
    await journal.append([said("a"), said("b"), said("c")])
    path = tmp_path / "trace.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(TraceDamaged, match="gap"):
        FileJournal(tmp_path)
    path.write_bytes(lines[0] + b"nonsense\n" + lines[2])
    with pytest.raises(TraceDamaged, match="line 2"):
        FileJournal(tmp_path)


async def test_a_payload_over_the_limit_is_refused_whole(tmp_path):
    journal = FileJournal(tmp_path)
    with pytest.raises(PayloadTooLarge):
        await journal.append([said("fine"), said("x" * MAX_PAYLOAD_BYTES)])
    assert await journal.load() == []
    with pytest.raises(ValueError):
        await journal.append([NewEvent(kind="budget.updated", payload={"spent": float("nan")})])


async def test_the_new_owner_shuts_the_old_one_out(tmp_path):
    old = FileJournal(tmp_path)
    await old.append([said("a")])
    new = FileJournal(tmp_path)
    with pytest.raises(LeaseLost):
        await old.append([said("late")])
    await new.append([said("b")])
    visitor = FileJournal(tmp_path, owner=False)
    await visitor.append([NewEvent(kind="control.requested", agent="person", payload={"action": "pause"})])
    assert [e.kind for e in await new.since(2)] == ["control.requested"]
    assert [e.seq for e in await new.append([said("c")])] == [4]


async def test_a_wakeup_tells_of_what_others_wrote(tmp_path):
    journal, visitor = FileJournal(tmp_path), FileJournal(tmp_path, owner=False)

    async def wait_for_two():
        async for _ in journal.wakeups():
            if len(await journal.since(0)) == 2:
                return

    task = asyncio.create_task(wait_for_two())
    await asyncio.sleep(0)
    await visitor.append([said("a"), said("b")])
    await asyncio.wait_for(task, 5)


async def test_export_and_import_lose_nothing(tmp_path):
    journal = FileJournal(tmp_path / "a")
    ref = await journal.put(b"\x00\xff bytes", "application/octet-stream", "x.bin")
    await journal.append([said("ä"), NewEvent(kind="artefact.attached", payload={"artefact": ref.model_dump(), "title": "x"})])
    events, artefacts = read_trace(tmp_path / "a")
    artefacts = list(artefacts)
    assert references(events) == {ref.sha: ref} and artefacts == [(ref.sha, b"\x00\xff bytes")]
    write_trace(tmp_path / "b", events, artefacts)
    assert (tmp_path / "a/trace.jsonl").read_bytes() == (tmp_path / "b/trace.jsonl").read_bytes()
    assert read_trace(tmp_path / "b")[0] == events
    (tmp_path / "b/artefacts" / ref.sha).write_bytes(b"changed")
    with pytest.raises(TraceDamaged, match="content"):
        list(read_trace(tmp_path / "b")[1])
    assert json.loads((tmp_path / "b/trace.jsonl").read_text().splitlines()[0])["v"] == 1
