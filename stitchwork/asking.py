"""Asynchronous API calls, used by the tools for coding agents."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import httpx

from stitchwork.api import AGENT, TIMEOUT, TRIES, ApiError, retry_after

Json = dict[str, Any]


class AsyncApi:
    """A connection to one installation with one token."""

    def __init__(self, url: str, authorization: str, transport: httpx.AsyncBaseTransport | None = None):
        self.url = url
        headers = {"Authorization": authorization, "User-Agent": AGENT}
        self._http = httpx.AsyncClient(base_url=f"{url}/api/v1", headers=headers, timeout=TIMEOUT, transport=transport)

    async def __aenter__(self) -> AsyncApi:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._http.aclose()

    async def get(self, path: str, **query: Any) -> Json:
        answer: Json = (await self._send("GET", path, params={name: value for name, value in query.items() if value not in (None, "")})).json()
        return answer

    async def post(self, path: str, body: Json) -> Json:
        answer: Json = (await self._send("POST", path, json=body, headers={"Idempotency-Key": str(uuid.uuid4())})).json()
        return answer

    async def text(self, path: str) -> str:
        return (await self._send("GET", path)).text

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        for attempt in range(1, TRIES + 1):
            try:
                response = await self._http.request(method, path, **options)
            except httpx.TransportError as error:
                if attempt == TRIES:
                    raise ApiError(f"{self.url} cannot be reached ({error or type(error).__name__})") from None
                await asyncio.sleep(0.25 * 2**attempt)
                continue
            wait = retry_after(response)
            if wait is not None and attempt < TRIES:
                await asyncio.sleep(min(15.0, wait))
                continue
            if response.is_success:
                return response
            raise ApiError.of(response)
        raise AssertionError("unreachable")
