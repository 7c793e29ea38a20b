"""The live protocol, through a real consumer, the real hub and a real Postgres."""

from __future__ import annotations

import asyncio
import json
from typing import ClassVar

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator

from agents.events import NewEvent
from tests.unit.webapp.cast import make_run, make_user
from webapp.accounts.lost_access import access_changed
from webapp.accounts.models import Membership
from webapp.runs.live import audience as audiences
from webapp.runs.live import consumers
from webapp.runs.live import feed as feeds
from webapp.runs.live import hub as hub_module
from webapp.runs.live.hub import hub
from webapp.runs.live.rights import ALLOWED
from webapp.runs.models import Run
from webapp.runs.sockets import socket_urlpatterns
from webapp.runs.trace.append import append

ACK_FRAMES, ACK_CHARACTERS = 8, 65_536  # the page's own rule (static/js/run/connection.js)
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

    opened: ClassVar[list[Client]] = []

    def __init__(self, run, user):
        self.socket = WebsocketCommunicator(URLRouter(socket_urlpatterns), f"/ws/runs/{run.pk}/")
        self.socket.scope["user"] = user
        self.seen: list[int] = []

    async def open(self, since: int | None = None) -> Client:
        connected, _ = await self.socket.connect(timeout=10)  # a busy machine is not a failure
        self.opened.append(self)
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

    async def leave(self) -> None:
        if self in self.opened:
            self.opened.remove(self)
        await self.socket.disconnect()

    async def closed_with(self) -> int:
        while True:
            message = await self.socket.receive_output(timeout=5)
            if message["type"] == "websocket.close":
                return message["code"]


@pytest_asyncio.fixture(autouse=True)
async def closed_hub():
    yield
    while Client.opened:
        await Client.opened.pop().leave()
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
    await client.leave()


async def test_so_many_frames_and_no_more_before_an_acknowledgement(monkeypatch):
    monkeypatch.setattr(audiences, "WINDOW_FRAMES", 3)
    user, run = await cast()
    await write(run, notes(1))
    client = await Client(run, user).open()
    frames = [await client.batch(acknowledge=False)]
    for _ in range(2):
        await write(run, notes(1))
        frames.append(await client.batch(acknowledge=False))
    await write(run, notes(1))
    assert await client.socket.receive_nothing(timeout=0.3)
    await client.say(type="ack", seq=frames[0]["last"] - 1)  # this acknowledges too little: there is still no room
    assert await client.socket.receive_nothing(timeout=0.1)
    await client.say(type="ack", seq=frames[0]["last"])
    await client.batch(acknowledge=False)
    await write(run, notes(1))
    assert await client.socket.receive_nothing(timeout=0.3)
    await client.say(type="ack", seq=4)
    await client.batch()
    assert client.seen == [1, 2, 3, 4, 5]
    await client.leave()


async def test_so_many_characters_and_no_more_before_an_acknowledgement():
    user, run = await cast()
    await write(run, notes(60, size=15_000))
    client = await Client(run, user).open()
    unacknowledged = 0
    while not await client.socket.receive_nothing(timeout=0.3):
        unacknowledged += len(json.dumps((await client.batch(acknowledge=False))["events"]))
    assert client.seen[-1] < 60 and unacknowledged < audiences.WINDOW_CHARACTERS + 1.2 * hub_module.BATCH_BYTES
    await client.say(type="ack", seq=client.seen[-1])
    await client.until(60)
    assert client.seen == list(range(1, 61))
    await client.leave()


async def test_a_page_that_acknowledges_as_rarely_as_it_may_is_never_left_waiting():
    user, run = await cast()
    client = await Client(run, user).open()

    async def writer() -> None:
        for number in range(80):
            await write(run, notes(1 + number % 3, size=(10, 3_000, 15_000)[number % 3]))

    writing = asyncio.create_task(writer())
    frames = characters = 0
    while len(client.seen) < 159:
        frame = await client.batch(acknowledge=False)
        frames, characters = frames + 1, characters + len(json.dumps(frame))
        if frames >= ACK_FRAMES or characters >= ACK_CHARACTERS:
            await client.say(type="ack", seq=frame["last"])
            frames = characters = 0
    assert client.seen == list(range(1, 160))
    await writing
    await client.leave()


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
    await client.leave()


async def test_reconnecting_goes_on_at_the_cursor():
    user, run = await cast()
    await write(run, notes(4))
    client = await Client(run, user).open()
    await client.batch()
    await client.leave()
    await write(run, notes(3))
    again = Client(run, user)
    again.seen = client.seen
    await again.open()
    await again.until(7)
    assert again.seen == list(range(1, 8))
    await again.leave()


async def test_four_writers_two_viewers_nothing_lost_or_double():
    user, run = await cast()
    viewers = [await Client(run, user).open() for _ in range(2)]

    async def writer() -> None:
        for _ in range(25):
            await sync_to_async(append, thread_sensitive=False)(run.pk, notes(1))

    await asyncio.gather(*(writer() for _ in range(4)), *(viewer.until(100) for viewer in viewers))
    for viewer in viewers:
        assert viewer.seen == list(range(1, 101))
        await viewer.leave()


async def test_a_lost_notification_is_made_up_by_the_safety_poll(monkeypatch):
    monkeypatch.setattr(hub_module, "SAFETY_POLL_SECONDS", 0.2)
    monkeypatch.setattr(hub_module.Hub, "_heard", lambda self, payload: None)
    user, run = await cast()
    client = await Client(run, user).open()
    await asyncio.sleep(0.05)
    await write(run, notes(2))
    await client.until(2)
    assert client.seen == [1, 2]
    await client.leave()


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
    await client.leave()


async def test_a_viewer_that_never_acknowledges_harms_nobody():
    user, run = await cast()
    await write(run, notes(1))
    silent = await Client(run, user).open()
    good = await Client(run, user).open()
    for _ in range(20):
        await write(run, notes(50, size=1000))
    await good.until(1001)
    assert good.seen == list(range(1, 1002))
    characters = 0
    while not await silent.socket.receive_nothing(timeout=0.1):
        characters += len(json.dumps((await silent.batch(acknowledge=False))["events"]))
    assert silent.seen == list(range(1, len(silent.seen) + 1)) and len(silent.seen) < 1001
    assert characters < audiences.WINDOW_CHARACTERS + 1.2 * hub_module.BATCH_BYTES
    for client in (silent, good):
        await client.leave()


async def test_everybody_together_costs_one_query_for_news_and_one_for_rights(monkeypatch):
    monkeypatch.setattr(audiences, "CHECK_SECONDS", 3600.0)
    user, run = await cast()
    await write(run, notes(1))
    clients = [await Client(run, user).open() for _ in range(10)]
    for client in clients:
        await client.until(1)
    asked: list[str] = []
    rows = hub_module.Hub.rows

    async def counted(self, statement, arguments):
        asked.append(statement)
        return await rows(self, statement, arguments)

    monkeypatch.setattr(hub_module.Hub, "rows", counted)
    await write(run, notes(1))
    for client in clients:
        await client.until(2)
    assert not asked.count(ALLOWED) and asked.count(hub_module.SELECT_WITHIN) <= 3  # one for each wake-up: that of the first note may still arrive
    await sync_to_async(access_changed)()
    while ALLOWED not in asked:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    assert asked.count(ALLOWED) <= 2  # the second one, if the slow poll happens now
    for client in clients:
        assert client.seen == [1, 2]
        await client.leave()


async def test_who_comes_late_reads_from_the_database_and_then_goes_on_with_the_others(monkeypatch):
    monkeypatch.setattr(feeds, "TAIL_EVENTS", 5)
    user, run = await cast()
    first = await Client(run, user).open()
    for _ in range(4):
        await write(run, notes(10))
    await first.until(40)
    late = await Client(run, user).open(since=0)
    unlikely = await Client(run, user).open(since=45)  # a cursor beyond the end: no events until the run reaches it
    await late.until(40)
    await write(run, notes(7))
    await asyncio.gather(first.until(47), late.until(47), unlikely.until(47))
    assert first.seen == late.seen == list(range(1, 48)) and unlikely.seen == [46, 47]
    for client in (first, late, unlikely):
        await client.leave()


async def test_nothing_is_left_behind_when_the_last_viewer_goes():
    user, run = await cast()
    await write(run, notes(1))
    clients = [await Client(run, user).open() for _ in range(2)]
    for client in clients:
        await client.until(1)
    assert list(audiences._audiences()) == [str(run.pk)]
    for client in clients:
        await client.leave()
    assert not audiences._audiences() and not hub()._feeds
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("courier")]


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
    await client.leave()


async def test_permission_is_checked_again(monkeypatch):
    monkeypatch.setattr(audiences, "CHECK_SECONDS", 0.0)
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


async def test_a_socket_opens_once():
    """Otherwise, each opening would have its own window, even for a page that reads nothing."""
    user, run = await cast()
    await write(run, notes(3))
    client = await Client(run, user).open()
    await client.batch()
    await client.say(type="open", since=0)
    assert await client.closed_with() == consumers.BAD_MESSAGE
    assert client.seen == [1, 2, 3]


async def test_http_has_the_same_events(async_client):
    user, run = await cast()
    await write(run, notes(3))
    client = await Client(run, user).open()
    frame = await client.batch()
    await async_client.aforce_login(user)
    answer = (await async_client.get(f"/runs/{run.pk}/events?since=0&limit=500")).json()
    assert answer == {"events": frame["events"], "last": 3, "head": 3}
    await client.leave()


async def test_a_closed_hub_is_not_opened_again_by_a_task_that_is_still_about():
    await sync_to_async(make_user)()
    assert await hub().query("SELECT 1", {}) == (1,)
    await hub().close()
    with pytest.raises(hub_module.HubClosed):
        await hub().query("SELECT 1", {})


async def test_a_reader_who_is_far_behind_holds_no_more_than_it_asked_for():
    _, run = await cast()
    await write(run, notes(40, size=15_000))
    async with hub_module.hub().follow(str(run.pk)) as follower:
        follower.feed.head = 40  # so that everything before it comes from the database
        lines = await hub_module.hub().read(follower.feed, 0, hub_module.BATCH_EVENTS, 64 * 1024)
        assert [seq for seq, _ in lines] == [1, 2, 3, 4, 5] and sum(len(text) for _, text in lines[:-1]) <= 64 * 1024, (
            "the one that fills it is the last"
        )
        assert [seq for seq, _ in await hub_module.hub().read(follower.feed, 4, 2, 64 * 1024)] == [5, 6]
