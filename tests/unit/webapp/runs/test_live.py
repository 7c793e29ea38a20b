"""The live protocol, through a real consumer, the real hub and a real Postgres."""

from __future__ import annotations

import asyncio
import json

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator

from agents.events import NewEvent
from tests.unit.webapp.cast import make_run, make_user
from webapp.accounts.models import Membership
from webapp.runs import consumers
from webapp.runs import hub as hub_module
from webapp.runs.append import append
from webapp.runs.hub import hub
from webapp.runs.models import Run
from webapp.runs.sockets import socket_urlpatterns

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


def notes(count: int, size: int = 10) -> list[NewEvent]:
    return [NewEvent(kind="note.added", payload={"text": "x" * size, "n": n}) for n in range(count)]


@sync_to_async
def cast():
    user = make_user()
    return user, make_run(user)


async def write(run, events) -> None:
    await sync_to_async(append)(run.pk, events)


class Client:
    """A browser on the other end of the socket."""

    def __init__(self, run, user):
        self.socket = WebsocketCommunicator(URLRouter(socket_urlpatterns), f"/ws/runs/{run.pk}/")
        self.socket.scope["user"] = user
        self.seen: list[int] = []

    async def open(self, since: int | None = None) -> Client:
        connected, _ = await self.socket.connect()
        assert connected
        await self.say(type="open", since=len(self.seen) if since is None else since)
        return self

    async def say(self, **message) -> None:
        await self.socket.send_to(text_data=json.dumps(message))

    async def batch(self, acknowledge: bool = True) -> dict:
        frame = json.loads(await self.socket.receive_from(timeout=5))
        self.seen += [event["seq"] for event in frame["events"]]
        if acknowledge:
            await self.say(type="ack", seq=frame["last"])
        return frame

    async def until(self, seq: int) -> None:
        while not self.seen or self.seen[-1] < seq:
            await self.batch()

    async def closed_with(self) -> int:
        while True:
            message = await self.socket.receive_output(timeout=5)
            if message["type"] == "websocket.close":
                return message["code"]


@pytest_asyncio.fixture(autouse=True)
async def closed_hub():
    yield
    await hub().close()


async def test_what_was_and_what_comes():
    user, run = await cast()
    await write(run, notes(3))
    client = await Client(run, user).open()
    frame = await client.batch()
    assert (client.seen, frame["last"], frame["head"]) == ([1, 2, 3], 3, 3)
    assert set(frame["events"][0]) == {"v", "run", "seq", "at", "span", "parent", "agent", "kind", "payload"}
    await write(run, notes(2))
    await client.until(5)
    assert client.seen == [1, 2, 3, 4, 5]
    await client.socket.disconnect()


async def test_nothing_before_the_acknowledgement():
    user, run = await cast()
    await write(run, notes(1))
    client = await Client(run, user).open()
    await client.batch(acknowledge=False)
    await write(run, notes(1))
    assert await client.socket.receive_nothing(timeout=0.3)
    await client.say(type="ack", seq=1)
    await client.batch()
    assert client.seen == [1, 2]
    await client.socket.disconnect()


async def test_batches_are_bounded(monkeypatch):
    user, run = await cast()
    await write(run, notes(600))
    await write(run, notes(40, size=15_000))
    client = await Client(run, user).open()
    sizes = []
    while len(client.seen) < 640:
        frame = await client.batch()
        sizes.append((len(frame["events"]), len(json.dumps(frame["events"]))))
    assert client.seen == list(range(1, 641))
    assert all(count <= hub_module.BATCH_EVENTS and size <= 1.2 * hub_module.BATCH_BYTES for count, size in sizes)
    await client.socket.disconnect()


async def test_reconnecting_goes_on_at_the_cursor():
    user, run = await cast()
    await write(run, notes(4))
    client = await Client(run, user).open()
    await client.batch()
    await client.socket.disconnect()
    await write(run, notes(3))
    again = Client(run, user)
    again.seen = client.seen
    await again.open()
    await again.until(7)
    assert again.seen == list(range(1, 8))
    await again.socket.disconnect()


async def test_four_writers_two_viewers_nothing_lost_or_double():
    user, run = await cast()
    viewers = [await Client(run, user).open() for _ in range(2)]

    async def writer() -> None:
        for _ in range(25):
            await sync_to_async(append, thread_sensitive=False)(run.pk, notes(1))

    await asyncio.gather(*(writer() for _ in range(4)), *(viewer.until(100) for viewer in viewers))
    for viewer in viewers:
        assert viewer.seen == list(range(1, 101))
        await viewer.socket.disconnect()


async def test_a_lost_notification_is_made_up_by_the_safety_poll(monkeypatch):
    monkeypatch.setattr(hub_module, "SAFETY_POLL_SECONDS", 0.2)
    monkeypatch.setattr(hub_module.Hub, "_heard", lambda self, payload: None)
    user, run = await cast()
    client = await Client(run, user).open()
    await asyncio.sleep(0.05)
    await write(run, notes(2))
    await client.until(2)
    assert client.seen == [1, 2]
    await client.socket.disconnect()


async def test_a_listener_that_loses_its_connection_comes_back():
    user, run = await cast()
    client = await Client(run, user).open()
    await asyncio.sleep(0.2)

    @sync_to_async
    def end_listeners() -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %%' AND datname = current_database()")

    await end_listeners()
    await write(run, notes(2))
    await client.until(2)
    assert client.seen == [1, 2]
    await client.socket.disconnect()


async def test_a_viewer_that_never_acknowledges_harms_nobody():
    user, run = await cast()
    await write(run, notes(1))
    silent = await Client(run, user).open()
    await silent.batch(acknowledge=False)
    good = await Client(run, user).open()
    for _ in range(20):
        await write(run, notes(10))
    await good.until(201)
    assert good.seen == list(range(1, 202)) and silent.seen == [1]
    assert await silent.socket.receive_nothing(timeout=0.1)
    for client in (silent, good):
        await client.socket.disconnect()


async def test_strangers_see_nothing():
    _, run = await cast()
    stranger = await sync_to_async(make_user)("eve")
    client = Client(run, stranger)
    await client.socket.connect()
    assert await client.closed_with() == consumers.NOT_YOURS


async def test_a_published_run_is_open_to_others():
    _, run = await cast()
    await write(run, notes(1))
    await Run.objects.filter(pk=run.pk).aupdate(published=True)
    client = await Client(run, await sync_to_async(make_user)("eve")).open()
    await client.batch()
    assert client.seen == [1]
    await client.socket.disconnect()


async def test_permission_is_checked_again(monkeypatch):
    monkeypatch.setattr(consumers, "CHECK_SECONDS", 0.0)
    user, run = await cast()
    await write(run, notes(1))
    client = await Client(run, user).open()
    await client.batch()
    await Membership.objects.filter(user=user).adelete()
    await write(run, notes(1))
    assert await client.closed_with() == consumers.NOT_YOURS
    assert client.seen == [1]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"type":"open"}',
        '{"type":"open","since":-1}',
        '{"type":"open","since":1%s}' % ("0" * 30),
        '{"type":"ack","seq":1}',
        '{"type":"shout"}',
        "x" * 2000,
    ],
)
async def test_other_messages_end_the_connection(text):
    user, run = await cast()
    client = Client(run, user)
    await client.socket.connect()
    await client.socket.send_to(text_data=text)
    assert await client.closed_with() == consumers.BAD_MESSAGE


async def test_http_has_the_same_events(async_client):
    user, run = await cast()
    await write(run, notes(3))
    client = await Client(run, user).open()
    frame = await client.batch()
    await async_client.aforce_login(user)
    answer = (await async_client.get(f"/runs/{run.pk}/events?since=0&limit=500")).json()
    assert answer == {"events": frame["events"], "last": 3, "head": 3}
    await client.socket.disconnect()
