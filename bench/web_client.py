"""Acts as a user of a running Stitchwork, using only HTTP and websockets: signs in with a one-time link, submits forms, and follows a run."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable
from html import unescape
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

PATIENCE = 60.0  # maximum seconds for one page while the machine is compiling
LOOK_SECONDS = 1.0  # maximum silence on the socket before the caller decides whether to continue


class Unexpected(RuntimeError):
    """Raised if the application gave an unexpected answer; the message says what it was, and where."""


class Client:
    """One person's cookies. `link` is the one-time sign-in link as printed by the supervisor."""

    def __init__(self, link: str):
        parts = urllib.parse.urlsplit(link)
        self.host = parts.netloc
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.http = httpx.Client(base_url=self.origin, follow_redirects=True, timeout=PATIENCE, trust_env=False)
        landed = self.get(parts.path).url.path
        if landed != "/" or not any(name.startswith("stitchwork_session") for name in self.http.cookies):
            raise Unexpected(f"the sign-in link led to {landed} and signed nobody in")

    def close(self) -> None:
        self.http.close()

    def get(self, path: str, **query: str) -> httpx.Response:
        answer = self.http.get(path, params=query or None)
        if answer.status_code != 200:
            raise Unexpected(f"GET {path} was answered with {answer.status_code}")
        return answer

    def post(self, path: str, **fields: str) -> httpx.Response:
        """Posts a form of the page at `path`, with the token from that page."""
        return self.post_from(path, path, **fields)

    def post_from(self, page: str, path: str, **fields: str) -> httpx.Response:
        """Posts a form of `page` to `path`."""
        text = self.get(page).text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', text) or re.search(r'"X-CSRFToken": ?"([^"]+)"', unescape(text))
        if token is None:
            raise Unexpected(f"the page {page} has no form")
        answer = self.http.post(path, data=fields | {"csrfmiddlewaretoken": token[1]}, headers={"Referer": self.origin + page})
        if answer.status_code != 200:
            said = [plain(part) for part in re.findall(r'class="field-error">(.*?)</span>', answer.text)]
            raise Unexpected(f"POST {path} was answered with {answer.status_code}{': ' + '; '.join(said)[:600] if said else ''}")
        return answer

    def submit(self, path: str, **fields: str) -> str:
        """Starts a run through the form at `path`; returns the run's id."""
        answer = self.post(path, **fields)
        found = re.fullmatch(r"/runs/([0-9a-f-]{36})/", answer.url.path)
        if found is None:
            raise Unexpected(f"submitting led to {answer.url.path} instead of a run")
        return found[1]

    def events_over_http(self, run: str) -> list[dict[str, Any]]:
        """Returns all events of a run from the pages' fallback without a websocket."""
        events: list[dict[str, Any]] = []
        while True:
            answer = self.get(f"/runs/{run}/events", since=str(events[-1]["seq"] if events else 0), limit="500").json()
            events += answer["events"]
            if not answer["events"] or answer["last"] >= answer["head"]:
                return events

    def follow(self, run: str, take: Callable[[dict[str, Any]], None], go_on: Callable[[], None]) -> dict[str, int]:
        """Passes every event of the run to `take`, in order, until `run.finished`. `go_on` is called at least once a second, and raises an exception
        to stop.

        Returns how many frames and connections were needed. A broken connection is reopened after the last event received.
        """
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.http.cookies.jar)
        seen = frames = connections = 0
        while True:
            go_on()
            connections += 1
            try:
                with connect(f"ws://{self.host}/ws/runs/{run}/", origin=self.origin, additional_headers={"Cookie": cookies}, proxy=None) as socket:
                    socket.send(json.dumps({"type": "open", "since": seen}))
                    while True:
                        go_on()
                        try:
                            frame = json.loads(socket.recv(timeout=LOOK_SECONDS))
                        except TimeoutError:
                            continue
                        frames += 1
                        for event in frame["events"]:
                            if event["seq"] != seen + 1:
                                raise Unexpected(f"event {event['seq']} came after event {seen}")
                            seen = event["seq"]
                            take(event)
                            if event["kind"] == "run.finished":
                                return {"frames": frames, "connections": connections}
                        socket.send(json.dumps({"type": "ack", "seq": frame["last"]}))
            except ConnectionClosed as closed:
                code = closed.rcvd.code if closed.rcvd else None
                if code is not None and 4400 <= code < 4500:
                    raise Unexpected(f"the websocket was closed with code {code}") from None
            except OSError as error:
                if connections > 30:
                    raise Unexpected(f"the websocket cannot be opened: {error}") from None
            time.sleep(0.5)


def plain(html: str) -> str:
    """Returns the text of an HTML fragment on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())
