"""A bounded pool of verifiers. Several judges of one GPU take turns at its clock by themselves (`verifier.judge.gate`), so while one measures, the
others compile and check; who finds them all at work waits in a line of limited length, and beyond it is told to come back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agents.local import Client
from verifier.jobs import Job, JobResult

RETRY_SECONDS = 2


class Full(RuntimeError):
    """All verifiers are at work and the line is as long as it may be: try again in `RETRY_SECONDS`."""


class Pool:
    """`most_waiting`: callers that may wait for a verifier, beside those that have one."""

    def __init__(self, clients: Sequence[Client], most_waiting: int):
        if not clients:
            raise ValueError("a pool needs a verifier")
        self.clients, self.most_waiting = tuple(clients), most_waiting
        self._free: asyncio.LifoQueue[Client] = asyncio.LifoQueue()
        for client in self.clients:
            self._free.put_nowait(client)
        self.waiting = self.done = self.refused = 0

    @property
    def at_work(self) -> int:
        return len(self.clients) - self._free.qsize()

    async def run(self, job: Job) -> JobResult:
        """Raises `Full`. A caller that is cancelled ends its job, and its verifier is free for the next."""
        if self._free.empty() and self.waiting >= self.most_waiting:
            self.refused += 1
            raise Full(f"{self.at_work} verifications are at work and {self.waiting} wait: try again in {RETRY_SECONDS} s")
        self.waiting += 1
        try:
            client = await self._free.get()
        finally:
            self.waiting -= 1
        try:
            return await client.run(job)
        finally:
            self.done += 1
            self._free.put_nowait(client)
