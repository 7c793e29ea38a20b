"""The messages that an open page receives, through the real consumer, the real hub and a real Postgres."""

from __future__ import annotations

import asyncio
import json
from typing import ClassVar

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator

from tests.unit.webapp.people import People, make_result
from webapp.accounts.lost_access import access_changed
from webapp.accounts.models import Membership
from webapp.review import consumers, services
from webapp.review.sockets import socket_urlpatterns
from webapp.runs.live.hub import hub

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


@pytest_asyncio.fixture(autouse=True)
async def closed_hub():
    """Closes the pages first: a request from a page's tasks after the hub was closed would reopen the hub, and it would never be closed again."""
    yield
    while Page.opened:
        await Page.opened.pop().socket.disconnect()
    await hub().close()


@sync_to_async
def cast():
    people = People.make()
    return people, make_result(people.alice)


class Page:
    opened: ClassVar[list[Page]] = []

    def __init__(self, user):
        self.socket = WebsocketCommunicator(URLRouter(socket_urlpatterns), "/ws/review/")
        self.socket.scope["user"] = user

    async def open(self, run=None, place: str = "the run") -> Page:
        await self.socket.connect()
        self.opened.append(self)
        if run is not None:
            await self.say(type="watch", run=str(run.pk), place=place)
        return self

    async def leave(self) -> None:
        self.opened.remove(self)
        await self.socket.disconnect()

    async def say(self, **message) -> None:
        await self.socket.send_to(text_data=json.dumps(message))

    async def until(self, kind: str, **wanted) -> dict:
        """Returns the next message of a kind that contains this, and skips others."""
        async with asyncio.timeout(10):
            while True:
                heard = json.loads(await self.socket.receive_from(timeout=10))
                if heard["type"] == kind and all(heard[name] == value for name, value in wanted.items()):
                    return heard

    async def closed_with(self) -> int:
        while True:
            message = await self.socket.receive_output(timeout=10)
            if message["type"] == "websocket.close":
                return message["code"]


async def test_a_comment_wakes_the_page_and_the_bell():
    people, run = await cast()
    alice = await Page(people.alice).open(run)
    await alice.until("unread", count=0)
    thread = await sync_to_async(services.open_thread)(people.bob, run, {"kind": "run"}, "See, @alice")
    await alice.until("review", seq=thread.seq)
    await alice.leave()
    again = await Page(people.alice).open()
    await again.until("unread", count=1)
    await again.leave()


async def test_who_is_here_and_where():
    people, run = await cast()
    alice = await Page(people.alice).open(run)
    bob = await Page(people.bob).open(run, "candidate 4")
    await alice.until("presence", people=[{"name": "bob", "place": "candidate 4"}])
    await bob.say(type="place", place="the timeline of candidate 4")
    await alice.until("presence", people=[{"name": "bob", "place": "the timeline of candidate 4"}])
    await bob.say(type="place", place="")
    await alice.until("presence", people=[])
    await bob.say(type="place", place="candidate 2")
    await alice.until("presence", people=[{"name": "bob", "place": "candidate 2"}])
    await bob.leave()
    await alice.until("presence", people=[])
    await alice.leave()


async def test_strangers_hear_nothing_of_a_run():
    people, run = await cast()
    charlie = await Page(people.charlie).open(run)
    await charlie.until("unread", count=0)
    await sync_to_async(services.open_thread)(people.bob, run, {"kind": "run"}, "words")
    assert await charlie.socket.receive_nothing(timeout=0.3)
    await charlie.leave()


async def test_whoever_leaves_the_team_hears_no_more():
    people, run = await cast()
    bob = await Page(people.bob).open(run)
    await bob.until("review", seq=0)
    await Membership.objects.filter(user=people.bob, team=run.team).adelete()
    await sync_to_async(access_changed)()
    assert await bob.closed_with() == consumers.NOT_YOURS


WATCH = '{"type":"watch","run":%s,"place":"the run"}'
BAD = ["no json", "[]", '{"type":"place","place":"<b>"}', WATCH % '"x"', WATCH % "1", '{"type":"shout"}', "x" * 500]


async def test_other_messages_end_the_connection():
    people, _ = await cast()
    for text in BAD:
        page = await Page(people.alice).open()
        await page.socket.send_to(text_data=text)
        assert await page.closed_with() == consumers.BAD_MESSAGE, text


async def test_nobody_without_an_account_is_heard():
    from django.contrib.auth.models import AnonymousUser

    page = await Page(AnonymousUser()).open()
    assert await page.closed_with() == consumers.SIGNED_OUT
