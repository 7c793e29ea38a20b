"""A bounded pool of verifiers. If several judges share one GPU, they take turns measuring (`verifier.judge.gate`), while the others compile and
check. If all verifiers are busy, callers wait in a queue of limited length. When the queue is full, callers have to try again later.

A verifier keeps the reference of the task that it judged last. Programs for the same task therefore go to the same verifiers if possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from agents.local import Client
from verifier.jobs import Job, JobResult

RETRY_SECONDS = 2


class Full(RuntimeError):
    """Raised if all verifiers are busy and the queue is full. Try again in `RETRY_SECONDS`."""


@dataclass(eq=False)
class _Waiting:
    task: str
    given: asyncio.Future[Client]


class Pool:
    """`most_waiting`: the number of callers that may wait for a verifier, in addition to those that have one."""

    def __init__(self, clients: Sequence[Client], most_waiting: int):
        if not clients:
            raise ValueError("a pool needs a verifier")
        self.clients, self.most_waiting = tuple(clients), most_waiting
        self._free: list[Client] = list(self.clients)  # ordered by last use
        self._task: dict[int, str] = {}  # the task that each client judged last
        self._queue: list[_Waiting] = []
        self.done = self.refused = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def at_work(self) -> int:
        return len(self.clients) - len(self._free)

    async def run(self, job: Job) -> JobResult:
        """Runs a job. Raises `Full`. If the caller is cancelled, its job ends and its verifier becomes available to the next caller."""
        client = await self._take(getattr(job, "task_source", ""))
        try:
            return await client.run(job)
        finally:
            self.done += 1
            self._give_back(client)

    async def _take(self, task: str) -> Client:
        if self._free:
            client = next((one for one in reversed(self._free) if self._task.get(id(one)) == task), self._free[0])
            self._free.remove(client)
            self._task[id(client)] = task
            return client
        if self.waiting >= self.most_waiting:
            self.refused += 1
            raise Full(f"{self.at_work} verifications are running and {self.waiting} wait: try again in {RETRY_SECONDS} s")
        mine = _Waiting(task, asyncio.get_running_loop().create_future())
        self._queue.append(mine)
        try:
            return await mine.given
        except asyncio.CancelledError:
            if mine in self._queue:
                self._queue.remove(mine)
            elif mine.given.done() and not mine.given.cancelled():
                self._give_back(mine.given.result())  # it was handed over at the moment of the cancellation
            raise

    def _give_back(self, client: Client) -> None:
        """Hands the client to the first caller with the same task, else to the first caller."""
        known = self._task.get(id(client))
        following = next((one for one in self._queue if one.task == known), self._queue[0] if self._queue else None)
        if following is None:
            self._free.append(client)
            return
        self._queue.remove(following)
        self._task[id(client)] = following.task
        following.given.set_result(client)
