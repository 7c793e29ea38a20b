"""`python -m agents llm check|list`: output as text and as JSON, and exit codes."""

from __future__ import annotations

import json

import pytest
from llm_profiles import KEY, models, profile, request
from llm_server import DONE, chunk, reply, serving, stream, usage

from agents import cli
from agents.llm.cassette import Exchange, append
from agents.llm.check import report, try_profile
from agents.llm.messages import Reply


async def tried(folder, answer, **fields):
    async with serving(answer) as wire:
        found = models(folder, profile(base_url=wire.url, **fields))
        trial = await try_profile(found, "fast")
    assert KEY not in trial.model_dump_json()
    return trial, len(wire.asked)


@pytest.mark.asyncio
async def test_a_profile_that_works(tmp_path):
    good = stream(chunk(delta={"reasoning_content": "hm"}), chunk("Fast"), chunk(finish="stop"), usage(20, 3), DONE)
    trial, asked = await tried(tmp_path, good, prices={"input": 1.0, "output": 2.0})
    assert trial.ok and trial.streamed and trial.reasoning and trial.model == "tiny-1" and trial.text == "Fast" and asked == 1
    assert trial.usage.input_tokens == 20 and trial.dollars == pytest.approx(26e-6) and 0 <= trial.first_seconds <= trial.seconds
    said = report([trial])
    assert "fast (openai, tiny-1): works" in said and "20 tokens in" in said and "$0.000026" in said and "first token after" in said


@pytest.mark.asyncio
async def test_a_server_that_says_little(tmp_path):
    trial, _ = await tried(tmp_path, reply({"choices": [{"message": {"content": "Fast"}, "finish_reason": "stop"}]}))
    assert trial.ok and trial.streamed is False and trial.usage is None
    assert "does not stream" in report([trial]) and "not reported by the server" in report([trial])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "kind", "part"),
    [
        (reply({"error": {"message": "bad key"}}, "401 X"), "refused", "check the key in the environment variable PLANTED_KEY"),
        (reply(b"", "503 X"), "busy", "HTTP 503"),
        (stream(chunk("Fa")), "unreachable", "without a finish reason"),
        (stream(chunk("", "stop"), DONE), "protocol", "the reply is empty"),
    ],
)
async def test_a_profile_that_does_not(tmp_path, answer, kind, part):
    trial, asked = await tried(tmp_path, answer)
    assert not trial.ok and trial.failure.kind == kind and part in report([trial]) and asked == 1  # without retries


@pytest.mark.asyncio
async def test_a_mailbox_and_recordings_are_looked_at(tmp_path):
    found = models(
        tmp_path, profile("me", kind="mailbox"), profile("tape", kind="cassette", file="t.jsonl"), profile("no", kind="cassette", file="n")
    )
    append(tmp_path / "t.jsonl", [Exchange(profile="x", request=request(), reply=Reply(text="y"))])
    me, tape, no = [await try_profile(found, name) for name in ("me", "tape", "no")]
    assert me.ok and "no requests wait" in me.note and not list((tmp_path / "mailbox").glob("*/*"))
    assert tape.ok and tape.note == "1 exchanges recorded" and not no.ok


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Sets up this process's environment for the command line."""
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PLANTED_KEY", KEY)
    monkeypatch.delenv("STITCHWORK_LLM_PROFILES", raising=False)
    return tmp_path


def test_exit_codes(here, capsys):
    assert cli.main(["llm", "check"]) == 2 and "no model is configured" in capsys.readouterr().err
    models(here, "[profiles]")
    assert cli.main(["llm", "check"]) == 2 and "holds no profile" in capsys.readouterr().err
    models(here, "[profiles.a]\nkind = 'openai'\n")
    assert cli.main(["llm", "list"]) == 2 and "key base_url: it is missing" in capsys.readouterr().err
    models(here, profile(base_url="http://127.0.0.1:9/v1"), profile("me", kind="mailbox"))
    assert cli.main(["llm", "check", "fat"]) == 2 and "there is no profile fat" in capsys.readouterr().err
    assert cli.main(["llm", "check", "me"]) == 0
    assert cli.main(["llm", "check"]) == 1 and "what to do:" in capsys.readouterr().out


def test_json(here, capsys):
    models(here, profile("me", kind="mailbox"), profile(base_url="http://h/v1", prices={"input": 1.0, "output": 2.0}))
    assert cli.main(["llm", "check", "me", "--json"]) == 0
    [trial] = json.loads(capsys.readouterr().out)
    assert trial["profile"] == "me" and trial["ok"] is True and trial["failure"] is None
    assert cli.main(["llm", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[1] == {
        "profile": "fast",
        "kind": "openai",
        "model": "tiny",
        "base_url": "http://h/v1",
        "key": "key in PLANTED_KEY",
        "prices": "known",
    }


def test_list_says_which_key_is_missing(here, monkeypatch, capsys):
    models(here, profile(base_url="http://h/v1"))
    monkeypatch.delenv("PLANTED_KEY")
    assert cli.main(["llm", "list"]) == 0
    assert capsys.readouterr().out == "fast (openai): tiny, http://h/v1, PLANTED_KEY is not set, prices unknown\n"


@pytest.mark.django_db(transaction=True)
def test_manage_py_does_the_same_with_the_mailbox_of_the_pages(here, capsys):
    from django.core.management import call_command

    models(here, profile("me", kind="mailbox"))
    call_command("llm_check")
    assert "me (mailbox): works" in (said := capsys.readouterr().out) and "on the page Mailbox; no requests wait there" in said
    with pytest.raises(SystemExit) as end:
        call_command("llm_check", "nobody")
    assert end.value.code == 2
