"""Checks the origin of browser connections. Only pages from exactly this origin, including the port, under one of our host names may connect.

All ports of a host share cookies, so a foreign page on another port of the same host would send our visitor's session cookie with its requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import SplitResult, urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

Message = dict[str, Any]
Application = Callable[[Message, Any, Any], Awaitable[None]]
PORTS = {"http": 80, "https": 443}


def header(scope: Message, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name), "")


def our_host(scope: Message) -> bool:
    """Returns whether the request's host is in ALLOWED_HOSTS, as Django checks for its own views."""
    domain, _ = split_domain_port(header(scope, b"host"))
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def same_origin(scope: Message) -> bool:
    """Returns whether the requesting page comes from the requested origin or from one of CSRF_TRUSTED_ORIGINS. A request without an origin is allowed
    because it doesn't come from a page in a browser."""
    origin = _split(header(scope, b"origin"))
    if origin is None or not our_host(scope):
        return False
    if any(_trusted(origin, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS):
        return True
    if settings.HTTPS and origin.scheme != "https":
        return False
    host, port = split_domain_port(header(scope, b"host"))
    ours = int(port) if port else PORTS[origin.scheme]  # a proxy that terminates TLS for us forwards the host name without a port
    return (origin.hostname or "") == host.strip("[]").rstrip(".") and (origin.port or PORTS[origin.scheme]) == ours


def _split(text: str) -> SplitResult | None:
    try:
        origin = urlsplit(text)
        _ = origin.port  # raises ValueError if the port is invalid
    except ValueError:
        return None
    return origin if origin.scheme in PORTS and origin.hostname else None


def _trusted(origin: SplitResult, pattern: str) -> bool:
    trusted = _split(pattern.replace("://*.", "://wildcard."))
    if trusted is None or trusted.scheme != origin.scheme or (trusted.port or PORTS[trusted.scheme]) != (origin.port or PORTS[origin.scheme]):
        return False
    wanted = (trusted.hostname or "").removeprefix("wildcard") if "://*." in pattern else trusted.hostname or ""
    return is_same_domain(origin.hostname or "", wanted)


class SameOrigin:
    """Middleware that checks the origin of websocket connections."""

    def __init__(self, application: Application):
        self.application = application

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        await (self.application if same_origin(scope) else WebsocketDenier())(scope, receive, send)
