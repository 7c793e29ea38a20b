"""Webhooks reach only public addresses, whatever a name server answers, and follow no redirects."""

from __future__ import annotations

import socket
import threading
from ipaddress import ip_network

import pytest

from webapp.notifications import posting
from webapp.notifications.addresses import AddressRefused, parsed, resolved
from webapp.notifications.posting import PostFailed, post

INSIDE = [
    "127.0.0.1", "10.0.0.5", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "240.0.0.1",
    "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::",
    "2002:a00:1::1", "::7f00:1", "192.0.2.1", "198.18.0.1", "2001:db8::1",
]  # fmt: skip


def answers(monkeypatch, *addresses: str) -> None:
    """Makes every name resolve to these addresses."""

    def told(host, port, *_, **__):
        families = [(socket.AF_INET6 if ":" in address else socket.AF_INET, address) for address in addresses]
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in families]

    monkeypatch.setattr(socket, "getaddrinfo", told)


@pytest.mark.parametrize("address", INSIDE)
def test_no_name_leads_inside(monkeypatch, address):
    answers(monkeypatch, address)
    with pytest.raises(AddressRefused, match="may not reach"):
        resolved(parsed("https://example.com/hook"))
    answers(monkeypatch, "93.184.215.14", address)  # one forbidden address among permitted ones
    with pytest.raises(AddressRefused, match="may not reach"):
        resolved(parsed("https://example.com/hook"))


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "[::1]", "[::ffff:7f00:1]", "127.0.0.1."])
def test_no_spelling_of_this_machine_is_taken(host):
    with pytest.raises(AddressRefused):
        resolved(parsed(f"https://{host}/"))


def test_public_addresses_are_taken(monkeypatch):
    answers(monkeypatch, "93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c")
    assert len(resolved(parsed("https://example.com/hook"))) == 2


@pytest.mark.parametrize(
    "url",
    [
        "", "hooks.slack.com/x", "ftp://example.com/", "file:///etc/passwd", "http://example.com/", "https://", "https://user:pw@example.com/",
        "https://example.com:99999/", "https://example.com/a b", "https://example.com\\@evil/", "https://exämple.com/", "https://e.com/" + "x" * 1000,
        "https://example.com/\r\nX: y", "https://[::1", "gopher://example.com/",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_webhook_is_refused(url):
    with pytest.raises(AddressRefused):
        parsed(url)


def test_an_operator_opens_a_network_also_for_plain_http(monkeypatch, settings):
    settings.WEBHOOK_NETWORKS = [ip_network("10.0.0.0/8")]
    answers(monkeypatch, "10.1.2.3")
    assert resolved(parsed("http://mattermost.internal:8065/hooks/x")) == ["10.1.2.3"]
    answers(monkeypatch, "93.184.215.14")
    with pytest.raises(AddressRefused):
        resolved(parsed("http://example.com/"))  # plain HTTP stays within the host
    answers(monkeypatch, "192.168.0.1")
    with pytest.raises(AddressRefused):
        resolved(parsed("https://other.internal/"))


class Server:
    """A server on loopback that answers one request with these bytes, and keeps what it received."""

    def __init__(self, answer: bytes, hold: bool = False):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.got = b""
        self.answer, self.hold = answer, hold
        self.done = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self.listener.accept()
        while b"\r\n\r\n" not in self.got or not self.got.endswith(b"}"):
            self.got += connection.recv(65536)
        connection.sendall(self.answer)
        if self.hold:
            self.done.wait(20)
        connection.close()


@pytest.fixture
def here(settings):
    """Allows loopback, as an operator can."""
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]


def test_a_message_arrives_with_the_hosts_name_at_the_address_that_was_checked(monkeypatch, here):
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    asked = []

    def told(host, port, *_, **__):
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "10.9.9.9"  # a different answer a moment later
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: told(host, *a, **k) if host == "hooks.internal" else real(host, *a, **k))
    assert post(f"http://hooks.internal:{server.port}/a?b=c", b"{}", {"X-Own": "1"}) == "HTTP 200"
    assert asked == ["hooks.internal"]
    head = server.got.decode()
    assert head.startswith("POST /a?b=c HTTP/1.1\r\n") and f"Host: hooks.internal:{server.port}\r\n" in head and "X-Own: 1" in head


def test_a_redirect_is_a_failure_and_leads_nowhere(here):
    target = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    server = Server(f"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:{target.port}/\r\nContent-Length: 0\r\n\r\n".encode())
    with pytest.raises(PostFailed, match="redirects aren't followed") as failure:
        post(f"http://127.0.0.1:{server.port}/", b"{}", {})
    assert failure.value.final and target.got == b""


@pytest.mark.parametrize(("status", "final"), [(400, True), (404, True), (410, True), (408, False), (429, False), (500, False), (503, False)])
def test_refusals_are_final_and_troubles_are_not(here, status, final):
    server = Server(f"HTTP/1.1 {status} No\r\nContent-Length: 9\r\n\r\nno\x1b[31m\x00!".encode())
    with pytest.raises(PostFailed) as failure:
        post(f"http://127.0.0.1:{server.port}/", b"{}", {})
    assert failure.value.final is final and str(failure.value).isprintable()


def test_whoever_answers_slowly_is_hung_up_on(monkeypatch, here):
    monkeypatch.setattr(posting, "WHOLE", 0.5)
    server = Server(b"HTTP/1.1 200 OK\r\nX-Slow: ", hold=True)
    with pytest.raises(PostFailed):
        post(f"http://127.0.0.1:{server.port}/", b"{}", {})
    server.done.set()


def test_nobody_there_is_said_in_words(here):
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    with pytest.raises(PostFailed, match="can't be reached") as failure:
        post(f"http://127.0.0.1:{port}/", b"{}", {})
    assert not failure.value.final
