"""Calls the API over HTTP and turns its errors into sentences."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from stitchwork import __version__
from stitchwork.login import Login

Json = dict[str, Any]

TIMEOUT = httpx.Timeout(30.0, connect=10.0)
STREAM_TIMEOUT = httpx.Timeout(10.0, read=45.0)  # the server sends something every 15 s
TRIES = 4
LONGEST_WAIT = 60.0
AGENT = f"stitchwork/{__version__}"


class ApiError(Exception):
    """Raised if the server refused a request or could not be reached. `str` says what failed, where, and what to do."""

    def __init__(self, message: str, status: int | None = None, problem: Json | None = None):
        super().__init__(message)
        self.status, self.problem = status, problem or {}

    @classmethod
    def of(cls, response: httpx.Response) -> ApiError:
        try:
            problem = response.json()
            problem = problem if isinstance(problem, dict) else {}
        except ValueError:
            problem = {}
        if "detail" not in problem:
            return cls(f"the server answered {response.status_code} to {response.request.method} {response.request.url.path}", response.status_code)
        lines = [str(problem["detail"])]
        faults = problem.get("errors") or []
        lines += (
            [f"  {_place(fault)}: {fault.get('message', '')}" for fault in faults] if len(faults) > 1 or any(f.get("line") for f in faults) else []
        )
        hint = problem.get("hint") or next((fault["hint"] for fault in faults if fault.get("hint")), "")
        if hint:
            lines.append(hint)
        return cls("\n".join(lines), response.status_code, problem)


def _place(fault: Json) -> str:
    line = f", line {fault['line']}" if fault.get("line") else ""
    return f"{fault.get('where', '')}{line}"


class Api:
    """A connection to one installation. Reads are retried if the network fails. Create requests carry a key, so they can be retried too."""

    def __init__(self, login: Login, transport: httpx.BaseTransport | None = None):
        self.login = login
        headers = {"Authorization": f"Bearer {login.token}", "User-Agent": AGENT}
        self._http = httpx.Client(base_url=f"{login.url}/api/v1", headers=headers, timeout=TIMEOUT, transport=transport)

    def get(self, path: str, **query: Any) -> Json:
        answer: Json = self._send("GET", path, params=_given(query)).json()
        return answer

    def post(self, path: str, body: Json) -> Json:
        answer: Json = self._send("POST", path, json=body, headers={"Idempotency-Key": str(uuid.uuid4())}).json()
        return answer

    def content(self, path: str) -> bytes:
        return self._send("GET", path).content

    def pages(self, path: str, name: str, most: int, **query: Any) -> list[Json]:
        """Returns up to `most` rows of a paginated list."""
        rows: list[Json] = []
        cursor = None
        while len(rows) < most:
            answer = self.get(path, **query, cursor=cursor, limit=min(200, most - len(rows)))
            rows += answer[name]
            cursor = answer["next"]
            if cursor is None:
                break
        return rows

    @contextmanager
    def stream(self, path: str, after: int) -> Iterator[Iterator[str]]:
        """Yields the lines of an event stream. Raises `httpx.TransportError` if the connection breaks and `ApiError` if the server refuses."""
        with self._http.stream("GET", path, headers={"Last-Event-ID": str(after), "Accept": "text/event-stream"}, timeout=STREAM_TIMEOUT) as response:
            if response.status_code != 200:
                response.read()
                raise ApiError.of(response)
            yield response.iter_lines()

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        for attempt in range(1, TRIES + 1):
            try:
                response = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                if attempt == TRIES:
                    raise ApiError(f"{self.login.url} cannot be reached ({_cause(error)}): is it running, and is the address right?") from None
                time.sleep(0.25 * 2**attempt)
                continue
            wait = retry_after(response)
            if wait is not None and attempt < TRIES:
                time.sleep(min(LONGEST_WAIT, wait))
                continue
            if response.is_success:
                return response
            raise ApiError.of(response)
        raise AssertionError("unreachable")


def retry_after(response: httpx.Response) -> float | None:
    """Returns the number of seconds to wait before repeating the call, as required by a rate limit or a server that is restarting."""
    if response.status_code not in (429, 502, 503, 504):
        return None
    try:
        return max(0.0, float(response.headers.get("Retry-After", "1")))
    except ValueError:
        return 1.0


def _given(query: Json) -> Json:
    return {name: value for name, value in query.items() if value is not None and value != "" and value is not False}


def _cause(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__
