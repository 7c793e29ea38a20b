"""Streams a run's events live. A broken connection is resumed at the cursor, so no event is lost or duplicated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from stitchwork.api import Api, ApiError

SLOWEST = 30.0  # maximum number of seconds between two attempts to connect
PASSING = (429, 500, 502, 503, 504)  # statuses of a server that is restarting


@dataclass(frozen=True)
class Said:
    """One server-sent event."""

    kind: str
    id: str
    data: str


def parse(lines: Iterable[str]) -> Iterator[Said]:
    """Yields the events of a stream, parsed by the rules of the HTML standard. Comments and an incomplete last event are left out."""
    kind, ident = "message", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield Said(kind, ident, "\n".join(data))
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value
        elif name == "id":
            ident = value


def follow(api: Api, run: str, after: int = 0, on_lost: Callable[[str, float], None] = lambda why, wait: None) -> Iterator[dict[str, Any]]:
    """Yields the events after `after` until the run's end. `on_lost` receives the reason for a lost connection and the seconds until the retry."""
    failed = 0
    while True:
        try:
            with api.stream(f"/runs/{run}/events/stream", after) as lines:
                for said in parse(lines):
                    if said.kind == "end":
                        return
                    event = json.loads(said.data)
                    if event["seq"] <= after:
                        continue
                    after, failed = event["seq"], 0
                    yield event
            why = "the server closed the connection"
        except httpx.TransportError as error:
            why = str(error) or type(error).__name__
        except ApiError as error:
            if error.status not in PASSING:
                raise
            why = f"the server answered {error.status}"
        wait = min(SLOWEST, 0.5 * 2**failed)
        failed += 1
        on_lost(why, wait)
        time.sleep(wait)
