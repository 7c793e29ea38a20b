"""The trace explorer's requests to the server: stretches, complete texts, exchanges with models, search."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from agents.events import NewEvent
from tests.unit.webapp.cast import make_run
from tests.unit.webapp.stretches import told
from webapp.runs import artefacts
from webapp.runs.pages import views_trace
from webapp.runs.trace.append import append


@pytest.fixture
def run(people):
    run = make_run(people.alice)
    asked = {
        "messages": [{"role": "system", "content": "You write kernels."}, {"role": "user", "content": "p" * 9000 + " needle"}],
        "max_tokens": 100,
    }
    request = artefacts.put(run.team_id, json.dumps(asked).encode(), "application/json", "request.json").model_dump()
    reply = artefacts.put(run.team_id, json.dumps({"text": "the reply"}).encode(), "application/json", "reply.json").model_dump()
    events = []
    for event in told():
        if event["kind"] in ("llm.requested", "llm.completed", "message.delta", "message.completed", "note.added", "span.opened", "span.closed"):
            payload = dict(event["payload"])
            if "request" in payload:
                payload["request"] = request
            if "reply" in payload:
                payload["reply"] = reply
            events.append(NewEvent(kind=event["kind"], span=event["span"], agent=event["agent"], payload=payload))
    append(run.pk, events)
    run.refresh_from_db()
    return run


def url(name: str, run, *more) -> str:
    return reverse(f"runs:{name}", args=[run.pk, *more])


def seq_of(run, kind: str, **payload) -> int:
    return next(e.seq for e in run.events.order_by("seq") if e.kind == kind and all(e.payload.get(k) == v for k, v in payload.items()))


def test_stretches_cover_the_trace_and_full_ones_are_kept_by_browsers(people, run, monkeypatch):
    monkeypatch.setattr(views_trace, "STRETCH", 30)
    client = people.client("alice")
    since, tags = 0, []
    while since < run.last_seq:
        answer = client.get(url("trace", run), {"since": since})
        stretch = answer.json()
        assert (stretch["since"], stretch["head"]) == (since, run.last_seq) and stretch["last"] > since
        tags.append(answer.headers.get("ETag"))
        since = stretch["last"]
    assert all(tags[:-1]) and tags[-1] is None
    assert client.get(url("trace", run), {"since": 0}, headers={"If-None-Match": tags[0]}).status_code == 304
    packed = client.get(url("trace", run), {"since": 0}, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip" and packed.content[:2] == b"\x1f\x8b"


def test_strangers_get_nothing_of_it(people, run):
    client = people.client("charlie")
    for address in (url("trace", run), url("message", run, 3), url("call", run, 3), url("search", run) + "?q=line"):
        assert client.get(address).status_code == 404


def test_the_whole_text_of_a_message_comes_in_portions_with_its_counts(people, run, monkeypatch):
    monkeypatch.setattr("webapp.runs.trace.texts.portion.__defaults__", (1000,))
    client = people.client("alice")
    seq = seq_of(run, "message.delta", message="step-1/attempt-2#1")
    text, start = "", 0
    while start is not None:
        part = client.get(url("message", run, seq), {"from": start}).json()
        text, start = text + part["text"], part["next"]
    assert text == "from the start 😀\n" * 130
    assert (part["characters"], part["lines"]) == (len(text), 131)
    assert client.get(url("message", run, 1)).status_code == 404


def test_a_text_with_a_gap_is_read_from_the_reply(people, run):
    seq = seq_of(run, "message.delta", message="step-1/attempt-3#1")
    assert people.client("alice").get(url("message", run, seq)).json()["text"] == "the reply"


def test_an_exchange_shows_its_prompts_cut_with_their_counts(people, run):
    client = people.client("alice")
    seq = seq_of(run, "llm.requested", key="step-1/attempt-1#1")
    call = client.get(url("call", run, seq)).json()
    assert [text["name"] for text in call["texts"]] == ["system", "user", "reply"] and call["settings"] == {"max_tokens": 100}
    prompt = call["texts"][1]
    assert (len(prompt["text"]), prompt["characters"], prompt["next"]) == (4000, 9007, 4000)
    rest = client.get(url("call", run, seq), {"text": 1, "from": 4000}).json()
    assert rest["text"].endswith("needle") and rest["next"] is None
    assert client.get(url("call", run, seq), {"text": 9}).status_code == 404


def find(people, run, **query) -> dict:
    return people.client("alice").get(url("search", run), query).json()


def test_words_have_to_occur_all_and_phrases_letter_for_letter(people, run):
    assert find(people, run, q="LINE reply")["kinds"]["message"] == 6
    assert find(people, run, q='"LINE"')["total"] == 0
    assert find(people, run, q='"of a long reply, with 😀"')["total"] == 6
    assert find(people, run, q="line nothing")["total"] == 0
    assert find(people, run, q="")["total"] == 0


def test_a_match_across_streamed_pieces_is_one_entry_at_the_first_piece(people, run):
    found = find(people, run, q="line 57 of")
    first = seq_of(run, "message.delta", message="step-1/attempt-3#1")
    assert first in found["places"] and found["places"] == sorted(found["places"])
    assert found["shown"][0]["match"] in ("line", "57", "of")


def test_filters_by_kind_and_agent(people, run):
    assert set(find(people, run, q="n", kind="note")["kinds"]) == {"note"}
    assert find(people, run, kind="span")["total"] == 10
    assert find(people, run, q="short", agent="person")["total"] == 4
    client = people.client("alice")
    assert client.get(url("search", run), {"kind": "spoon"}).status_code == 400
    assert client.get(url("search", run), {"q": "x" * 300}).status_code == 400


def test_prompts_are_searched_when_asked_for(people, run):
    assert find(people, run, q="needle")["total"] == 0
    found = find(people, run, q="needle", stored="1")
    assert found["total"] == 5 and {hit["where"] for hit in found["shown"]} == {"prompt"}
