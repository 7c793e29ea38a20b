"""Sends one message to a webhook. The address is checked, the exchange is limited to a few seconds, and redirects are not followed."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading

from webapp.notifications.addresses import AddressRefused, Target, parsed, resolved

CONNECT = 5.0  # timeout of each step, in seconds
WHOLE = 12.0  # timeout of the whole exchange in seconds, even if the receiver keeps sending slowly
OWN_HEADERS = {"Content-Type": "application/json", "User-Agent": "Stitchwork", "Connection": "close"}
MOST_ANSWER = 500  # maximum number of bytes read from a response


class PostFailed(Exception):
    """Raised if the message was not accepted. The message says why. `final` means that a retry would not help."""

    def __init__(self, message: str, final: bool = False):
        super().__init__(message)
        self.final = final


def post(url: str, body: bytes, headers: dict[str, str]) -> str:
    """Returns the receiver's response, shortened. Raises `PostFailed`."""
    try:
        target = parsed(url)
        addresses = resolved(target)
    except AddressRefused as refused:
        raise PostFailed(str(refused)) from None
    try:
        status, answer = _sent(target, addresses[0], body, headers)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PostFailed(_why(error, target)) from None
    if 200 <= status < 300:
        return f"HTTP {status}"
    if 300 <= status < 400:
        raise PostFailed(f"HTTP {status}: redirects aren't followed. Enter the address that it leads to.", final=True)
    said = f"HTTP {status}" + (f": {answer}" if answer else "")
    raise PostFailed(said, final=400 <= status < 500 and status not in (408, 425, 429))


def _sent(target: Target, address: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    connection = _connection(target, address)
    late = threading.Event()
    watch = threading.Timer(WHOLE, _hang_up, [connection, late])
    watch.daemon = True
    watch.start()
    try:
        connection.request("POST", target.path, body, OWN_HEADERS | headers)
        answer = connection.getresponse()
        text = answer.read(MOST_ANSWER).decode("utf-8", "replace")
        if late.is_set():  # the timeout closed the connection, which looks like the end of a response
            raise TimeoutError
        return answer.status, " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:200]
    finally:
        watch.cancel()
        connection.close()


def _connection(target: Target, address: str) -> http.client.HTTPConnection:
    """Returns a connection whose socket connects to the checked address, with the host's name in TLS and in the Host header."""
    connection: http.client.HTTPConnection
    if target.scheme == "https":
        connection = http.client.HTTPSConnection(target.host, target.port, timeout=CONNECT)
    else:
        connection = http.client.HTTPConnection(target.host, target.port, timeout=CONNECT)

    def connect() -> None:
        plain = socket.create_connection((address, target.port), CONNECT)
        connection.sock = context().wrap_socket(plain, server_hostname=target.host) if target.scheme == "https" else plain

    connection.connect = connect  # type: ignore[method-assign]  # creates the socket here, to the checked address
    return connection


def context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _hang_up(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    late.set()
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _why(error: Exception, target: Target) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{target.host} has no valid certificate: {getattr(error, 'verify_message', '') or error.reason or error}"
    if isinstance(error, TimeoutError):
        return f"{target.host} didn't answer in time."
    return f"{target.host} can't be reached: {getattr(error, 'strerror', None) or type(error).__name__}"
