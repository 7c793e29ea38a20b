"""Comments through the API: made at every place, answered, resolved, followed by their sequence numbers, and closed to everyone who may not read
them."""

from __future__ import annotations

import json

import pytest

from tests.browser import sample_run
from webapp.accounts.models import Membership
from webapp.api.calls.limits import BUCKETS
from webapp.review import services
from webapp.review.models import Comment, Notification, Thread
from webapp.runs.models import Run


@pytest.fixture
def run(people) -> Run:
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    run.refresh_from_db()
    return run


@pytest.fixture
def base(run) -> str:
    return f"/api/v1/runs/{run.pk}/comments"


def post(client, path: str, body: dict, **headers: str):
    return client.post(path, json.dumps(body), content_type="application/json", headers=headers)


def test_a_thread_from_its_first_word_to_its_end(people, alice, caller, run, base):
    made = post(alice, base, {"text": "@bob two reads of the row", "place": {"kind": "line", "candidate": 4, "line": 2}})
    assert made.status_code == 201, made.content
    thread = made.json()
    assert thread["on"] == "line 2 of candidate 4" and thread["anchor"]["text"]
    assert thread["page"].endswith(f"?tab=source&thread={thread['id']}#L2")
    assert [(c["author"], c["text"]) for c in thread["comments"]] == [("alice", "@bob two reads of the row")]
    assert Notification.objects.get(user=people.bob).kind == "mention"
    bob = caller(people.bob, team=run.team)
    answered = post(bob, f"{base}/{thread['id']}/replies", {"text": "one is enough"}).json()
    assert [c["author"] for c in answered["comments"]] == ["alice", "bob"] and answered["seq"] > thread["seq"]
    for _ in range(2):
        done = post(alice, f"{base}/{thread['id']}/resolution", {"resolved": True}).json()
        assert done["resolved"] and done["resolved_by"] == "alice"
    assert alice.get(f"{base}?resolved=false").json()["threads"] == []
    assert [t["id"] for t in alice.get(f"{base}?resolved=true&candidate=4").json()["threads"]] == [thread["id"]]
    assert not post(bob, f"{base}/{thread['id']}/resolution", {"resolved": False}).json()["resolved"]
    assert bob.get(f"{base}/{thread['id']}").json() == alice.get(f"{base}/{thread['id']}").json()


@pytest.mark.parametrize(
    ("place", "on"),
    [
        (None, "the run"),
        ({"kind": "event", "seq": 1}, "the start of the run (event 1)"),
        ({"kind": "candidate", "candidate": 2}, "candidate 2"),
        ({"kind": "line", "candidate": 4, "line": 1, "side": "old", "against": "task", "view": "diff"}, "line 1 of the reference"),
    ],
)
def test_places(alice, base, place, on):
    answer = post(alice, base, {"text": "here"} | ({"place": place} if place else {}))
    assert answer.status_code == 201 and answer.json()["on"] == on


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"text": ""}, "body.text"),
        ({"text": "   "}, "body.text"),
        ({"text": "x" * 5001}, "body.text"),
        ({"text": "x", "place": {"kind": "candidate", "candidate": 77}}, "body.place"),
        ({"text": "x", "place": {"kind": "line", "candidate": 4, "line": 100_000}}, "body.place"),
        ({"text": "x", "place": {"kind": "event", "seq": 10**9}}, "body.place"),
        ({"text": "x", "place": {"kind": "range", "sha": "0" * 64, "start_ns": 1, "end_ns": 2}}, "body.place"),
        ({"text": "x", "place": {"kind": "moon"}}, "body.place"),
        ({"text": "x", "palce": {"kind": "run"}}, "body.palce"),
    ],
)
def test_what_cannot_be_said_there_is_refused_at_its_place(alice, base, body, where):
    answer = post(alice, base, body)
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["where"].startswith(where) and not Thread.objects.exists()


def test_the_list_is_followed_by_its_sequence(alice, people, run, base):
    ids = [services.open_thread(people.bob, run, {"kind": "run"}, f"thought {n}").pk for n in range(5)]
    first = alice.get(f"{base}?limit=3").json()
    rest = alice.get(f"{base}?limit=3&after={first['next']}").json()
    assert [t["id"] for t in first["threads"] + rest["threads"]] == ids and rest["next"] is None
    assert alice.get(f"{base}?after={rest['seq']}").json()["threads"] == []
    services.reply(people.bob, Thread.objects.get(pk=ids[1]), "more")
    assert [t["id"] for t in alice.get(f"{base}?after={rest['seq']}").json()["threads"]] == [ids[1]]


def test_deleted_words_are_gone(alice, people, run, base):
    thread = services.open_thread(people.bob, run, {"kind": "run"}, "hasty")
    services.reply(people.bob, thread, "better")
    services.delete(people.bob, thread.comments.first())
    assert [(c["text"], c["deleted"]) for c in alice.get(f"{base}/{thread.pk}").json()["comments"]] == [("", True), ("better", False)]
    services.delete(people.bob, thread.comments.last())
    assert alice.get(f"{base}/{thread.pk}").status_code == 404 and alice.get(base).json()["threads"] == []


def test_sent_twice_it_is_said_once(alice, base):
    sent = [post(alice, base, {"text": "once"}, **{"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in sent] == [201, 201] and sent[0].json() == sent[1].json() and Comment.objects.count() == 1


def test_who_writes_without_end_is_told_to_wait(alice, base, monkeypatch):
    monkeypatch.setattr(services, "A_MINUTE", 2)
    answers = [post(alice, base, {"text": f"{n}"}) for n in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429] and answers[-1].headers["Retry-After"]


def test_scopes_and_roles(people, caller, run, base):
    thread = services.open_thread(people.alice, run, {"kind": "run"}, "ours").pk
    read, submit, verify = (caller(people.alice, scope) for scope in ("read", "submit", "verify"))
    assert (read.get(base).status_code, submit.get(base).status_code, verify.get(base).status_code) == (200, 403, 403)
    for path, body in ((base, {"text": "x"}), (f"{base}/{thread}/replies", {"text": "x"}), (f"{base}/{thread}/resolution", {"resolved": True})):
        BUCKETS.clear()
        assert post(read, path, body).status_code == 403 and post(verify, path, body).status_code == 403, path
        assert post(submit, path, body).status_code in (200, 201), path
    Membership.objects.filter(user=people.bob, team=run.team).update(role=Membership.VIEWER)
    viewer = caller(people.bob, team=run.team)
    assert viewer.get(base).status_code == 200 and post(viewer, base, {"text": "x"}).status_code == 403


def test_a_published_run_keeps_its_comments_to_the_team(people, caller, run, base):
    thread = services.open_thread(people.alice, run, {"kind": "run"}, "ours").pk
    Run.objects.filter(pk=run.pk).update(published=True)
    stranger = caller(people.charlie)
    assert stranger.get(f"/api/v1/runs/{run.pk}").status_code == 200
    for path in (base, f"{base}/{thread}"):
        answer = stranger.get(path)
        assert answer.status_code == 404 and b"ours" not in answer.content
    assert post(stranger, base, {"text": "hello"}).status_code in (403, 404) and Thread.objects.count() == 1
