"""Pages from another origin, which includes the port, cannot follow a run; streams have the same headers as pages."""

from __future__ import annotations

import asyncio
import json

import pytest
from channels.testing import WebsocketCommunicator
from django.urls import reverse

from webapp.api.stream import events_stream
from webapp.origins import SameOrigin, same_origin

RUN = "00000000-0000-0000-0000-000000000000"


def scope(host: str, origin: str = "", **headers: str) -> dict:
    told = {"host": host, **({"origin": origin} if origin else {}), **headers}
    pairs = [(name.encode(), value.encode()) for name, value in told.items()]
    return {"type": "http", "method": "GET", "path": "/", "headers": pairs, "url_route": {"kwargs": {"run_id": RUN}}, "query_string": b""}


@pytest.mark.parametrize(
    ("host", "origin", "https", "same"),
    [
        ("localhost:8000", "http://localhost:8000", False, True),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", False, True),
        ("[::1]:8000", "http://[::1]:8000", False, True),
        ("localhost:8000", "http://localhost:9000", False, False),
        ("localhost:8000", "http://localhost", False, False),
        ("localhost", "http://localhost:8000", False, False),
        ("localhost:8000", "http://127.0.0.1:8000", False, False),
        ("localhost:8000", "http://evil.example:8000", False, False),
        ("evil.example:8000", "http://evil.example:8000", False, False),
        ("localhost", "https://localhost", True, True),
        ("localhost", "http://localhost", True, False),
        ("localhost:8000", "", False, False),
        ("localhost:8000", "null", False, False),
        ("localhost:8000", "http://localhost:x", False, False),
        ("localhost:8000", "file:///etc/passwd", False, False),
        ("localhost:8000", "https://lab.example", False, True),
        ("localhost:8000", "https://lab.example:444", False, False),
        ("localhost:8000", "https://a.team.example", False, True),
        ("localhost:8000", "https://team.example.evil", False, False),
    ],
)
def test_the_origin_is_scheme_name_and_port(settings, host, origin, https, same):
    settings.HTTPS = https
    settings.CSRF_TRUSTED_ORIGINS = ["https://lab.example", "https://*.team.example"]
    assert same_origin(scope(host, origin)) is same


def test_a_websocket_of_another_port_is_denied():
    """The victim's browser sends its session with the request; the page's origin decides whether it is accepted."""

    async def run() -> list[bool]:
        async def accepting(scope, receive, send):
            await receive()
            await send({"type": "websocket.accept"})

        found = []
        for origin in ("http://localhost:8000", "http://localhost:9000"):
            headers = [(b"host", b"localhost:8000"), (b"origin", origin.encode())]
            socket = WebsocketCommunicator(SameOrigin(accepting), "/ws/runs/x/", headers=headers)
            found.append((await socket.connect())[0])
            await socket.disconnect()
        return found

    assert asyncio.run(run()) == [True, False]


def stream(found: dict) -> tuple[int, dict[str, str], dict]:
    sent: list[dict] = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.disconnect"}

    asyncio.run(events_stream(found, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, json.loads(sent[1]["body"])


def test_a_stream_under_a_foreign_name_is_refused():
    status, _, problem = stream(scope("evil.example:8000", authorization="Bearer x"))
    assert status == 400 and problem["detail"] == "This host name isn't one of this installation."


def test_a_stream_for_a_page_of_another_port_is_refused():
    status, _, problem = stream(scope("localhost:8000", "http://localhost:9000", cookie="sessionid=x"))
    assert status == 403 and problem["detail"] == "A page of another origin must not follow a run with your session."


@pytest.mark.django_db
@pytest.mark.parametrize("https", [False, True])
def test_a_stream_carries_the_headers_of_pages(client, settings, https):
    settings.HTTPS, settings.SECURE_HSTS_SECONDS = https, 100 if https else 0
    page = client.get(reverse("account_login"), secure=https)
    _, headers, _ = stream(scope("evil.example"))
    names = ("content-security-policy", "x-frame-options", "referrer-policy", "cross-origin-opener-policy", "x-content-type-options")
    assert [headers[name] for name in names] == [page.headers[name] for name in names]
    assert headers.get("strict-transport-security") == page.headers.get("strict-transport-security")
