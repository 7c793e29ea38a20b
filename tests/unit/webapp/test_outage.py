"""While the database does not respond, every page reports this, with status 503 and without revealing anything about it: over ASGI, as Daphne serves
them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError, connection
from django.db.backends.utils import CursorWrapper
from django.test import AsyncClient
from psycopg import errors

from tests.browser.addresses import patterns
from tests.unit.webapp.isolation.world import World, make_world
from webapp.outage import away
from webapp.review.guests import protected

pytestmark = pytest.mark.django_db
# Pages that do not query the database: health, and documents of the API, which are the same for everyone.
NEEDS_NOTHING = {"healthz", "openapi", "api_reference"}


@pytest.fixture
def world() -> Iterator[World]:
    made = make_world()
    yield made
    made.clear()


@pytest.fixture
def stopped(monkeypatch):
    def refuse(*arguments, **named):
        raise OperationalError("connection refused")

    def stop() -> None:
        for name in ("execute", "executemany"):
            monkeypatch.setattr(CursorWrapper, name, refuse)
        monkeypatch.setattr(connection, "cursor", refuse)

    return stop


@pytest.mark.slow
def test_every_page_answers_503_with_a_plain_page(world, stopped):
    client = AsyncClient(raise_request_exception=False)
    client.force_login(world.people["owner"])
    addresses = {pattern.name or pattern.route: world.address(pattern) for pattern in patterns() if world.fills(pattern) is not None}
    stopped()

    async def ask_all() -> dict[str, tuple[int, str, str]]:
        found = {}
        for name, address in addresses.items():
            answer = await client.get(address, headers={"accept": "text/html"})
            body = b"".join([part async for part in answer]) if answer.streaming else answer.content
            found[name] = (answer.status_code, body.decode(errors="replace"), answer.headers.get("Retry-After", ""))
        return found

    found = async_to_sync(ask_all)()
    served = {name for name, (status, _, _) in found.items() if status == 200}
    assert {name: status for name, (status, _, _) in found.items() if status == 500} == {}
    away = {name: (body, retry) for name, (status, body, retry) in found.items() if status == 503}
    assert len(away) > 80, sorted(found)
    for name, (body, retry) in away.items():
        assert "The database does not answer." in body and "Traceback" not in body and retry == "5", name
    pages = ("runs:list", "runs:run", "tasks:list", "tasks:submit", "leaderboard:table", "review:overview", "fleet:devices", "account_login")
    assert not served & set(pages), served
    assert served <= NEEDS_NOTHING | {name for name in served if name.startswith("api")}, served


def test_programs_are_told_in_json(world, stopped):
    client = AsyncClient(raise_request_exception=False)
    client.force_login(world.people["owner"])
    stopped()
    answer = async_to_sync(client.get)("/api/v1/runs", headers={"authorization": "Bearer sw_x"})
    assert answer.status_code == 503 and answer.headers["Content-Type"] == "application/problem+json" and answer.json()["hint"]
    answer = async_to_sync(client.get)(f"/runs/{world.run.pk}/events", headers={"accept": "application/json"})
    assert answer.status_code == 503 and "does not answer" in answer.json()["error"]


def caused(by: Exception) -> OperationalError:
    error = OperationalError()
    error.__cause__ = by
    return error


def test_only_a_server_that_is_away_is_called_away():
    assert away(OperationalError("refused")) and away(caused(errors.AdminShutdown())) and away(caused(errors.TooManyConnections()))
    wrapped = RuntimeError()
    wrapped.__context__ = caused(errors.CannotConnectNow())
    assert away(wrapped)
    assert not away(caused(errors.QueryCanceled())) and not away(caused(errors.DiskFull())) and not away(ValueError()) and not away(None)


def test_a_response_is_protected_without_asking_who_the_user_is(rf):
    from django.http import HttpResponse
    from django.utils.functional import SimpleLazyObject

    def asked():
        raise AssertionError("the database was asked in the event loop")

    request = rf.get("/")
    for user in (SimpleLazyObject(asked), AnonymousUser()):
        request.user = user
        assert "X-Robots-Tag" not in protected(request, HttpResponse()).headers
