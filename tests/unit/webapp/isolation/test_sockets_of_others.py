"""Every WebSocket and event stream, for everyone without permission; and what happens to open ones when a permission ends."""

from __future__ import annotations

import asyncio
import json

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from channels.testing import HttpCommunicator, WebsocketCommunicator
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.test import RequestFactory

from agents.events import NewEvent
from tests.unit.webapp.cast import SOURCE
from tests.unit.webapp.isolation.world import MARK, make_team
from webapp import asgi
from webapp.accounts import teams, tokens
from webapp.accounts.lost_access import access_changed
from webapp.accounts.models import Membership
from webapp.review.sockets import socket_urlpatterns as review_sockets
from webapp.runs.live.hub import hub
from webapp.runs.models import Run
from webapp.runs.sockets import socket_urlpatterns as run_sockets
from webapp.runs.trace.append import append
from webapp.tasks.models import Task

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
SOCKETS = [*run_sockets, *review_sockets]
# The message that would make each socket show a run, by route. A socket that is not listed here fails the test.
OPENINGS = {
    "ws/runs/<uuid:run_id>/": {"type": "open", "since": 0},
    "ws/review/": {"type": "watch", "run": "{run}", "place": "the run"},
}
# Routes served alongside Django's pages: the stream is tested here, and the tools call the API with the caller's own token.
HTTP = {"api/v1/runs/<uuid:run_id>/events/stream", "mcp", ""}
NOT_YOURS, SIGNED_OUT = 4404, 4401


@sync_to_async
def cast():
    team, people = make_team(f"team-{MARK}", MARK)
    other, strangers = make_team("others", "others")
    task = Task.objects.create(team=team, sha="a" * 64, name=MARK, source=SOURCE)
    run = Run.objects.create(team=team, task=task, title=MARK, state="running", created_by=people["owner"])
    append(run.pk, [NewEvent(kind="note.added", payload={"text": MARK})])
    return team, people, other, strangers, run


@pytest_asyncio.fixture(autouse=True)
async def closed_hub():
    yield
    await hub().close()


def socket(route: str, run: Run, user) -> WebsocketCommunicator:
    found = WebsocketCommunicator(URLRouter(SOCKETS), "/" + route.replace("<uuid:run_id>", str(run.pk)))
    found.scope["user"] = user
    return found


async def heard(communicator: WebsocketCommunicator, opening: dict | None = None) -> tuple[str, int | None]:
    """Returns everything that the socket sent until it fell silent, and the code with which it closed."""
    said, code = "", None
    if opening is not None:
        await communicator.connect()
        await communicator.send_to(text_data=json.dumps(opening))
    while not await communicator.receive_nothing(timeout=0.4):
        message = await communicator.receive_output(timeout=2)
        said += message.get("text") or ""
        if message["type"] == "websocket.close":
            code = message["code"]
            break
    return said, code


def opening_of(route: str, run: Run) -> dict:
    return {name: value.format(run=run.pk) if isinstance(value, str) else value for name, value in OPENINGS[route].items()}


async def test_every_socket_and_stream_is_known():
    assert {str(pattern.pattern) for pattern in SOCKETS} == set(OPENINGS)
    assert {str(pattern.pattern) for pattern in asgi.http_urlpatterns} == HTTP


@pytest.mark.slow
async def test_sockets_tell_nobody_of_another_team():
    _, people, _, strangers, run = await cast()
    for route in OPENINGS:
        opening = opening_of(route, run)
        own = socket(route, run, people["viewer"])
        said, code = await heard(own, opening)
        assert str(run.pk) in said and code is None, "or the silence of the others would prove nothing"
        await own.disconnect()
        for user in (*strangers.values(), AnonymousUser()):
            other = socket(route, run, user)
            said, code = await heard(other, opening)
            assert MARK not in said and str(run.pk) not in said
            if "<uuid:run_id>" in route or user.is_anonymous:
                assert code == (SIGNED_OUT if user.is_anonymous else NOT_YOURS)
            await other.disconnect()


@pytest.mark.slow
async def test_a_member_who_is_removed_hears_nothing_more_though_nothing_happens():
    team, people, _, _, run = await cast()
    member = people[Membership.MEMBER]
    open_sockets = [socket(route, run, member) for route in OPENINGS]
    for route, one in zip(OPENINGS, open_sockets, strict=True):
        await heard(one, opening_of(route, run))
    await open_sockets[0].send_to(text_data='{"type": "ack", "seq": 1}')
    await asyncio.sleep(0.2)

    def remove() -> None:
        request = RequestFactory().post("/")
        request.user, request.session = people[Membership.OWNER], {}
        teams.remove(request, team, Membership.objects.select_related("user").get(team=team, user=member))

    await sync_to_async(remove)()
    for one in open_sockets:
        said, code = await heard(one)
        assert code == NOT_YOURS and MARK not in said
        await one.disconnect()


async def test_signing_out_closes_the_sockets_of_that_session():
    _, people, _, _, run = await cast()

    def session() -> SessionStore:
        made = SessionStore()
        made.create()
        return made

    kept = await sync_to_async(session)()
    one = socket("ws/runs/<uuid:run_id>/", run, people["owner"])
    one.scope["session"] = kept
    await heard(one, {"type": "open", "since": 0})
    await one.send_to(text_data='{"type": "ack", "seq": 1}')
    await asyncio.sleep(0.2)

    def end() -> None:
        kept.delete()
        access_changed()

    await sync_to_async(end)()
    assert (await heard(one))[1] is not None
    await one.disconnect()


async def test_the_stream_of_events_is_refused():
    team, people, other, strangers, run = await cast()

    @sync_to_async
    def made() -> dict[str, str]:
        given = {f"other {role}": tokens.issue(user, other, role, list(tokens.SCOPES))[1] for role, user in strangers.items()}
        scopeless = tokens.issue(people["owner"], team, "small", [])[1]
        return given | {"scopeless": scopeless, "invented": "sw_invented", "nobody": ""}

    allowed = {"other": {404}, "scopeless": {403, 404}, "invented": {401}, "nobody": {401}}
    for who, token in (await made()).items():
        headers = [(b"host", b"localhost"), *([(b"authorization", f"Bearer {token}".encode())] if token else [])]
        answer = await HttpCommunicator(
            URLRouter(asgi.http_urlpatterns), "GET", f"/api/v1/runs/{run.pk}/events/stream", headers=headers
        ).get_response()
        assert answer["status"] in allowed[who.partition(" ")[0]] and MARK.encode() not in answer["body"], who
