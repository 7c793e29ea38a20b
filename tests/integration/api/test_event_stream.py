"""Server-sent events from a real Daphne: live, from a cursor, and to the end of the run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
import pytest

from stitchwork.api import Api
from stitchwork.login import Login
from stitchwork.stream import follow, parse
from tests.browser import sample_run
from webapp.accounts import tokens
from webapp.accounts.models import ApiToken
from webapp.runs.models import Run

STREAM = "/api/v1/runs/{}/events/stream"


@pytest.fixture
def run(people) -> Run:
    return sample_run.create_run(people.alice)


@pytest.fixture
def client(server, token):
    with httpx.Client(base_url=server, headers={"Authorization": f"Bearer {token}"}, timeout=20) as made:
        yield made


def read(client: httpx.Client, run: Run, **options) -> list:
    with client.stream("GET", STREAM.format(run.pk), **options) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        return list(parse(answer.iter_lines()))


def test_every_event_once_and_then_the_end(client, run):
    last = sample_run.play(run)
    said = read(client, run)
    assert [int(one.id) for one in said[:-1]] == list(range(1, last + 1))
    assert set(json.loads(said[0].data)) == {"v", "run", "seq", "at", "span", "parent", "agent", "kind", "payload"}
    assert (said[-1].kind, json.loads(said[-1].data)) == ("end", {"last": last, "state": "finished", "outcome": "improved"})


@pytest.mark.slow
def test_it_goes_on_after_the_last_event_id(client, run):
    last = sample_run.play(run)
    by_header = read(client, run, headers={"Last-Event-ID": str(last - 3)})
    by_query = read(client, run, params={"after": last - 3})
    assert [one.id for one in by_header] == [one.id for one in by_query] == [str(last - 2), str(last - 1), str(last), str(last)]
    assert [one.kind for one in read(client, run, headers={"Last-Event-ID": str(last)})] == ["end"]


def test_events_come_while_they_are_written(client, run):
    sample_run.play(run, stop_after=20)
    seen: list[int] = []
    with client.stream("GET", STREAM.format(run.pk)) as answer:
        for said in parse(answer.iter_lines()):
            if said.kind == "end":
                break
            seen.append(int(said.id))
            if seen[-1] == 20:  # everything so far; later events are written while the test is following
                write_the_end(run)
    run.refresh_from_db()
    assert seen == list(range(1, run.last_seq + 1)) and run.last_seq > 20


def write_the_end(run: Run) -> None:
    from agents.events import NewEvent
    from webapp.runs.trace.append import append

    append(run.pk, [NewEvent(kind="note.added", agent="person", payload={"text": str(n), "to": "all", "by": "alice"}) for n in range(5)])
    append(run.pk, [NewEvent(kind="run.finished", payload={"outcome": "cancelled", "reason": "enough", "best": None, "speedup": None})])


@pytest.mark.parametrize(
    ("headers", "address", "status"),
    [
        ({}, None, 401),
        ({"Authorization": "Bearer sw_unknown"}, None, 401),
        (None, "/api/v1/runs/00000000-0000-4000-8000-000000000000/events/stream", 404),
        (None, "/api/v1/runs/not-a-run/events/stream", 404),
        ({"Last-Event-ID": "x"}, None, 400),
        ({"Last-Event-ID": "9" * 40}, None, 400),
    ],
)
def test_what_is_refused_is_a_problem(server, token, run, headers, address, status):
    sent = {"Authorization": f"Bearer {token}"} if headers is None or "Last-Event-ID" in headers else {}
    answer = httpx.get(server + (address or STREAM.format(run.pk)), headers=sent | (headers or {}), timeout=20)
    assert answer.status_code == status and answer.headers["content-type"].startswith("application/problem+json")
    assert answer.json()["status"] == status and answer.json()["detail"] and answer.json()["hint"]


def test_only_those_who_may_see_the_run(server, people, run):
    sample_run.play(run)
    for user, team, scopes, status in (
        (people.bob, people.alice.personal_team, ["read"], 200),
        (people.bob, people.bob.personal_team, ["read"], 404),
        (people.charlie, people.charlie.personal_team, ["read"], 404),
        (people.alice, people.alice.personal_team, ["verify"], 403),
    ):
        header = {"Authorization": f"Bearer {tokens.issue(user, team, 't', scopes)[1]}"}
        assert httpx.get(server + STREAM.format(run.pk), headers=header, timeout=20).status_code == status, (user, scopes)


def test_a_revoked_token_reads_no_further(server, token, run):
    sample_run.play(run, stop_after=20)
    api = Api(Login(server, token, "test"))
    with api.stream(f"/runs/{run.pk}/events/stream", 0) as lines:
        for said in parse(lines):
            if said.id == "20":
                ApiToken.objects.update(revoked_at="2020-01-01T00:00:00Z")
                time.sleep(2.2)  # longer than CHECK_SECONDS
                write_the_end(run)
    run.refresh_from_db()
    assert said.id == "20" and run.last_seq > 20


@pytest.mark.slow
def test_streams_hold_no_thread(client, server, run):
    """With forty waiting viewers, the server process has no more threads than before."""
    sample_run.play(run, stop_after=20)
    process = _pid_of(server)
    opened = [client.stream("GET", STREAM.format(run.pk)) for _ in range(40)]
    for stream in opened[:1]:
        _first(stream)
    before = _threads(process)
    for stream in opened[1:]:
        _first(stream)
    during = _threads(process)
    for stream in opened:
        stream.__exit__(None, None, None)
    assert during <= before + 2


def _first(stream) -> None:
    next(stream.__enter__().iter_raw())


def _pid_of(server: str) -> int:
    """Finds the pid of the Daphne process that listens on this port, from its arguments."""
    port = f"tcp:port={server.rpartition(':')[2]}:"
    return next(int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if port in _read(path))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@pytest.mark.slow
def test_a_client_goes_on_where_its_connection_broke(server, token, run, monkeypatch):
    last = sample_run.play(run)
    api, given = Api(Login(server, token, "test")), []
    whole = api.stream

    class Breaking:
        def __init__(self, path, after):
            self.made = whole(path, after)
            given.append(after)

        def __enter__(self):
            lines = self.made.__enter__()
            broken = len(given) < 3
            return _cut(lines) if broken else lines

        def __exit__(self, *raised):
            return self.made.__exit__(*raised)

    def _cut(lines):
        for count, line in enumerate(lines):
            if count > 40:
                raise httpx.ReadError("the network went away")
            yield line

    monkeypatch.setattr(api, "stream", Breaking)
    monkeypatch.setattr("stitchwork.stream.time.sleep", lambda seconds: None)
    lost: list[str] = []
    seqs = [event["seq"] for event in follow(api, str(run.pk), on_lost=lambda why, wait: lost.append(why))]
    assert seqs == list(range(1, last + 1))
    assert len(given) == 3 and given[0] == 0 < given[1] < given[2] and lost == ["the network went away"] * 2
