"""Limits of an endpoint, tested with a fake clock; and the client with many concurrent requests."""

from __future__ import annotations

import asyncio
import random

import pytest
from llm_profiles import ask, models, profile
from llm_server import DONE, chunk, reply, serving, stream, usage, words

from agents.llm import limits, server
from agents.llm.limits import WINDOW, Limiter
from agents.llm.profiles import Limits

pytestmark = pytest.mark.asyncio


class Clock:
    """A clock that advances only while something sleeps."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        self.real = asyncio.sleep
        monkeypatch.setattr(limits.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(limits.asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await self.real(0)


async def times(limiter: Limiter, clock: Clock, tokens: list[int], takes: float = 0.0) -> list[float]:
    """Returns the times at which the requests were let through."""
    begun: list[float] = []

    async def one(count: int) -> None:
        async with limiter.place(count):
            begun.append(clock.now)
            await clock.real(takes)

    await asyncio.gather(*(one(count) for count in tokens))
    return begun


async def test_requests_a_minute(monkeypatch):
    clock = Clock(monkeypatch)
    begun = await times(Limiter(Limits(concurrency=100, requests_per_minute=10)), clock, [1] * 35)
    assert len(begun) == 35
    for first, eleventh in zip(begun, begun[10:], strict=False):
        assert eleventh - first >= WINDOW
    assert begun[-1] - begun[0] < 3 * WINDOW + 1  # and no more slowly than necessary


@pytest.mark.parametrize("seed", range(5))
async def test_tokens_a_minute(monkeypatch, seed):
    clock = Clock(monkeypatch)
    dice = random.Random(seed)
    counts = [dice.randint(1, 500) for _ in range(40)]
    begun = await times(Limiter(Limits(concurrency=100, tokens_per_minute=1000)), clock, counts)
    for i, start in enumerate(begun):
        assert sum(c for c, at in zip(counts[i:], begun[i:], strict=True) if at - start < WINDOW) <= 1000


async def test_a_request_larger_than_the_limit_goes_alone(monkeypatch):
    clock = Clock(monkeypatch)
    begun = await times(Limiter(Limits(tokens_per_minute=1000)), clock, [10, 5000, 10])
    assert begun[1] - begun[0] >= WINDOW and begun[2] - begun[1] >= WINDOW


async def test_what_a_reply_really_took_makes_room(monkeypatch):
    clock = Clock(monkeypatch)
    limiter = Limiter(Limits(tokens_per_minute=1000))
    for _ in range(5):
        async with limiter.place(900) as place:
            place.correct(20)
    assert clock.now == 1000.0
    async with limiter.place(950):
        assert clock.now >= 1000.0 + WINDOW


async def test_everybody_waits_when_the_server_asks(monkeypatch):
    clock = Clock(monkeypatch)
    limiter = Limiter(Limits())
    limiter.hold(30)
    assert await times(limiter, clock, [1, 1]) == [pytest.approx(1030, abs=0.1)] * 2


async def test_a_cancelled_waiter_leaves_its_place(monkeypatch):
    limiter = Limiter(Limits(concurrency=1))
    inside = asyncio.Event()

    async def hold() -> None:
        async with limiter.place(1):
            inside.set()
            await asyncio.Event().wait()

    holder = asyncio.create_task(hold())
    await inside.wait()
    waiter = asyncio.create_task(hold())
    await asyncio.sleep(0)
    waiter.cancel()
    holder.cancel()
    await asyncio.gather(holder, waiter, return_exceptions=True)
    async with asyncio.timeout(5), limiter.place(1):
        pass


async def test_concurrency_is_shared_by_all_who_ask(tmp_path):
    slow = stream(chunk("Yes"), chunk(finish="stop"), usage(), DONE, pause=0.01)
    async with serving(slow) as wire:
        text = profile(base_url=wire.url, limits={"concurrency": 3})
        one, other = models(tmp_path, text), models(tmp_path, text)  # as for two runs in one process that each opened their own models
        replies = await asyncio.gather(*(ask(found, key=f"a#{i}") for i in range(10) for found in (one, other)))
    assert len(replies) == 20 and wire.most_at_once == 3


async def test_a_server_that_is_busy_holds_back_all(tmp_path, monkeypatch):
    async def no_wait(_: float) -> None: ...

    monkeypatch.setattr(server, "sleep", no_wait)
    async with serving(reply(b"", "429 X", Retry_After="0.3"), words()) as wire:
        found = models(tmp_path, profile(base_url=wire.url, limits={"concurrency": 1}))
        begun = asyncio.get_running_loop().time()
        await asyncio.gather(ask(found), ask(found))
        assert asyncio.get_running_loop().time() - begun >= 0.3
    assert len(wire.asked) == 3
