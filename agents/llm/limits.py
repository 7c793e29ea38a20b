"""The limits of one endpoint, shared by all callers in this process: concurrent calls, and requests and tokens per minute."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from agents.llm.profiles import Limits, ServerProfile

WINDOW = 60.0


class Place:
    """One request's share of a minute's capacity; call `correct` once the server has reported the actual number of tokens."""

    def __init__(self, at: float, tokens: int):
        self.at, self.tokens = at, tokens

    def correct(self, tokens: int) -> None:
        self.tokens = tokens


class Limiter:
    """Serves callers in order of arrival. No 60-second window contains more requests or tokens than the limits allow."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._turn = asyncio.Lock()
        self._recent: deque[Place] = deque()
        self._not_before = 0.0

    @asynccontextmanager
    async def place(self, tokens: int) -> AsyncIterator[Place]:
        """Waits for a slot and for capacity in the current minute. `tokens`: the maximum number that the request can use."""
        async with self._slots:
            async with self._turn:
                while (wait := self._wait(tokens)) > 0:
                    await asyncio.sleep(wait)
                place = Place(time.monotonic(), tokens)
                self._recent.append(place)
            yield place

    def hold(self, seconds: float) -> None:
        """Pauses all callers because the server requested it."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def _wait(self, tokens: int) -> float:
        now = time.monotonic()
        while self._recent and self._recent[0].at <= now - WINDOW:
            self._recent.popleft()
        waits = [self._not_before - now]
        requests, most = self.limits.requests_per_minute, self.limits.tokens_per_minute
        if requests is not None and len(self._recent) >= requests:
            waits.append(self._recent[-requests].at + WINDOW - now)
        if most is not None:
            total = tokens + sum(place.tokens for place in self._recent)
            for place in self._recent:  # the oldest requests leave the window first; a request larger than the limit is sent alone
                if total <= most:
                    break
                total -= place.tokens
                waits.append(place.at + WINDOW - now)
        wait = max(waits)
        return wait + 0.001 if wait > 0 else 0.0


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Limiter]] = WeakKeyDictionary()


def limiter_of(profile: ServerProfile) -> Limiter:
    """Returns this process's limiter for the endpoint, key and model."""
    limiters = _shared.setdefault(asyncio.get_running_loop(), {})
    name = f"{profile.base_url} {profile.model} {profile.api_key_env} {profile.limits.model_dump_json()}"
    return limiters.setdefault(name, Limiter(profile.limits))
