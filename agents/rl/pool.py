"""A bounded pool of verifiers. If several judges share one GPU, they take turns measuring (`verifier.judge.gate`), while the others compile and
check. If all verifiers are busy, callers wait in a queue of limited length. When the queue is full, callers have to try again later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agents.local import Client
from verifier.jobs import Job, JobResult

RETRY_SECONDS = 2


class Full(RuntimeError):
    """Raised if all verifiers are busy and the queue is full. Try again in `RETRY_SECONDS`."""


class Pool:
    """`most_waiting`: the number of callers that may wait for a verifier, in addition to those that have one."""

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
        """Runs a job. Raises `Full`. If the caller is cancelled, its job ends and its verifier becomes available to the next caller."""
        if self._free.empty() and self.waiting >= self.most_waiting:
            self.refused += 1
            raise Full(f"{self.at_work} verifications are running and {self.waiting} wait: try again in {RETRY_SECONDS} s")
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
