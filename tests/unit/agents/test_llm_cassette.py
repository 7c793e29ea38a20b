"""Recordings: a recorded request receives its recorded answer, and a missing recording is reported by name."""

from __future__ import annotations

import asyncio
import json

import pytest
from llm_profiles import KEY, Heard, ask, models, profile, request
from llm_server import serving, words

from agents.events import NewEvent
from agents.journal import FileJournal
from agents.llm import cli
from agents.llm.cassette import Cassette, Exchange, append, exchanges_of, fingerprint
from agents.llm.errors import ModelFailure
from agents.llm.messages import Reply, Request, Usage

TAPE = profile("tape", kind="cassette", file="tape.jsonl")


def recorded(text: str, said: str, *, key: str = "a#1", of: str = "fast", **fields) -> Exchange:
    return Exchange(profile=of, run="r", key=key, request=request(text, **fields), estimate={"calls": 1, "tokens": 7}, reply=Reply(text=said))


async def play(found, text: str, *, key: str, run: str = "r", **fields) -> str:
    return (await ask(found, name="tape", asked=request(text, **fields), key=key, run=run)).text


@pytest.mark.asyncio
async def test_record_then_replay(tmp_path):
    async with serving(words("One"), words("Two")) as wire:
        text = profile(base_url=wire.url, prices={"input": 1.0, "output": 2.0})
        found = models(tmp_path, text, profile("tape", kind="cassette", file="tape.jsonl", record="fast"))
        assert await play(found, "first", key="a#1") == "One"
        assert await play(found, "second", key="a#2") == "Two"
        assert await play(found, "first", key="a#1") == "One" and len(wire.asked) == 2
    assert KEY not in (tmp_path / "tape.jsonl").read_text()
    again = models(tmp_path, TAPE)
    heard = Heard()
    got = await ask(again, heard, name="tape", asked=request("second"), key="other#9", run="another")
    assert got.text == heard.text == "Two" and got.usage == Usage(input_tokens=10, output_tokens=5) and got.dollars == pytest.approx(2e-5)
    assert again.estimate("tape", request("first"))["dollars"] > 0  # as recorded


@pytest.mark.asyncio
async def test_equal_requests_are_told_apart_by_key_and_then_by_order(tmp_path):
    append(tmp_path / "tape.jsonl", [recorded("x", "first", key="a#1"), recorded("x", "second", key="b#1"), recorded("x", "third", key="c#1")])
    found = models(tmp_path, TAPE)
    assert await play(found, "x", key="b#1") == "second"
    assert await play(found, "x", key="new#1") == "first"
    assert await play(found, "x", key="b#1") == "second"  # requested again after an interruption
    assert await play(found, "x", key="new#2") == "third"
    with pytest.raises(ModelFailure, match="more often than the 3 times"):
        await play(found, "x", key="new#3")
    assert await play(found, "x", key="a#1", run="another run") == "first"


@pytest.mark.asyncio
async def test_a_recording_that_is_replaced_or_grows_is_read_again(tmp_path):
    append(tmp_path / "tape.jsonl", [recorded("x", "one")])
    found = models(tmp_path, TAPE)
    assert await play(found, "x", key="a#1") == "one"
    append(tmp_path / "tape.jsonl", [recorded("x", "two", key="b#1")])
    assert await play(found, "x", key="c#1") == "two"  # the first one is used
    (tmp_path / "tape.jsonl").unlink()
    append(tmp_path / "tape.jsonl", [recorded("x", "other")])
    assert await play(found, "x", key="d#1") == "other"


def test_the_purpose_is_no_part_of_a_request():
    assert fingerprint(request("x", purpose="a")) == fingerprint(request("x", purpose="b"))
    assert len({fingerprint(r) for r in (request("x"), request("y"), request("x", max_tokens=9), request("x", temperature=0.5))}) == 4


@pytest.mark.asyncio
async def test_a_missing_recording_names_the_nearest(tmp_path):
    old, other = "Write it.\nThe shape is 4x4.\nBe quick.", "Diagnose.\nThe shape is 4x5.\nBe quick."
    append(tmp_path / "tape.jsonl", [recorded(other, "no", purpose="verifier/advise"), recorded(old, "yes", purpose="coder/write", key="step-1#2")])
    with pytest.raises(ModelFailure) as failure:
        await play(models(tmp_path, TAPE), old.replace("4x4", "8x8"), key="a#1", purpose="coder/write")
    said = failure.value.message
    assert failure.value.kind == "configuration" and "coder/write is not in the recording tape.jsonl" in said and "step-1#2" in said
    assert "recorded 'The shape is 4x4.', now 'The shape is 8x8.'" in said
    with pytest.raises(ModelFailure, match="has max_tokens 100, not 50"):
        await play(models(tmp_path, TAPE), old, key="a#1", max_tokens=50)


@pytest.mark.asyncio
async def test_an_empty_recording(tmp_path):
    with pytest.raises(ModelFailure, match="the recording is empty"):
        await play(models(tmp_path, TAPE), "x", key="a#1")


@pytest.mark.asyncio
@pytest.mark.parametrize(("line", "part"), [("{}", "line 2"), ("not json", "line 2"), ('{"v": 7}', "line 2")])
async def test_a_line_that_is_no_exchange(tmp_path, line, part):
    append(tmp_path / "tape.jsonl", [recorded("x", "y")])
    with (tmp_path / "tape.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ModelFailure, match=part):
        await play(models(tmp_path, TAPE), "x", key="a#1")


def test_a_torn_line_is_ended_before_the_next(tmp_path):
    append(tmp_path / "t.jsonl", [recorded("x", "y")])
    (tmp_path / "t.jsonl").write_bytes((tmp_path / "t.jsonl").read_bytes().rstrip(b"\n"))
    append(tmp_path / "t.jsonl", [recorded("z", "w")])
    assert [e.reply.text for e in Cassette(tmp_path / "t.jsonl").exchanges] == ["y", "w"]


async def traced(folder, said: str = "Ja.") -> None:
    """Returns a trace with one completed and one incomplete exchange."""
    journal = FileJournal(folder)
    for key, reply in (("plan#1", Reply(text=said)), ("plan#2", None)):
        asked = await journal.put(request("Plan it.", purpose="planner/plan").model_dump_json().encode(), "application/json")
        payload = {"key": key, "profile": "fast", "purpose": "planner/plan", "request": asked.model_dump(), "estimate": {"calls": 1, "tokens": 40}}
        await journal.append([NewEvent(kind="llm.requested", span="plan", payload=payload)])
        if reply is not None:
            kept = await journal.put(reply.model_dump_json().encode(), "application/json")
            thoughts = await journal.put(b"hm", "text/plain")
            payload = {"key": key, "profile": "fast", "reply": kept.model_dump(), "reasoning": thoughts.model_dump()}
            await journal.append([NewEvent(kind="llm.completed", span="plan", payload=payload)])


def test_export_of_a_run(tmp_path, capsys):
    asyncio.run(traced(tmp_path / "run"))
    out = tmp_path / "tape.jsonl"
    assert cli.export(tmp_path / "run", out) == 0 and "1 exchanges of fast" in capsys.readouterr().out
    [exchange] = Cassette(out).exchanges
    assert (exchange.key, exchange.profile, exchange.reply.text, exchange.reply.reasoning) == ("plan#1", "fast", "Ja.", "hm")
    assert exchange.estimate == {"calls": 1, "tokens": 40} and isinstance(exchange.request, Request)
    found = models(tmp_path, TAPE)
    assert asyncio.run(play(found, "Plan it.", key="plan#1", run="another")) == "Ja."
    assert found.estimate("tape", request("Plan it.")) == {"calls": 1, "tokens": 40}
    assert cli.export(tmp_path / "run", out) == 2 and "is there already" in capsys.readouterr().err


def test_export_of_what_is_no_run(tmp_path, capsys):
    assert cli.export(tmp_path, tmp_path / "t") == 2 and "holds no trace.jsonl" in capsys.readouterr().err
    FileJournal(tmp_path / "empty")
    assert cli.export(tmp_path / "empty", tmp_path / "t") == 2 and "no exchange" in capsys.readouterr().err
    (tmp_path / "empty" / "trace.jsonl").write_text(json.dumps({"v": 1}) + "\n")
    assert cli.export(tmp_path / "empty", tmp_path / "t") == 2 and "line 1" in capsys.readouterr().err


def test_journal_of_an_export_is_only_read(tmp_path):
    asyncio.run(traced(tmp_path / "run"))
    before = sorted((p.name, p.stat().st_size) for p in (tmp_path / "run").rglob("*"))
    asyncio.run(exchanges_of(FileJournal(tmp_path / "run", owner=False)))
    after = sorted((p.name, p.stat().st_size) for p in (tmp_path / "run").rglob("*"))
    assert before == after
