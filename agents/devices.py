"""Combines several devices on one host into one client. Each job goes to a free device.

Each device has its own judge, which measures one program at a time. A device that is named twice has two judges, which take turns measuring
(`verifier.judge.gate`), so one builds while the other measures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from agents.local import Client, OnStage
from verifier.jobs import Job, JobResult
from verifier.report import Environment


class Judge(Client, Protocol):
    """A client that has to be closed."""

    async def close(self) -> None: ...


def names_of(given: str) -> list[str]:
    """Returns the devices in a list such as "cuda:0,cuda:1". Raises `ValueError` if they cannot be used together for one run."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    kinds = {name.partition(":")[0] for name in names}
    if not names or len(kinds) > 1:
        raise ValueError(f"a run has one device, or several of one kind: {given!r} is neither")
    return names


def setting_of(given: str) -> str:
    """Returns the device setting that a run on these devices records: the name of a single device, or the kind shared by several devices."""
    names = names_of(given)
    return names[0] if len(set(names)) == 1 else names[0].partition(":")[0]


class Devices:
    """A `Client` that distributes jobs across the judges of several devices. All devices must be the same model, because timings from different
    models are not comparable."""

    def __init__(self, names: Sequence[str], judges: Sequence[Judge]):
        self.names, self.judges = tuple(names), tuple(judges)
        self._free: asyncio.Queue[Judge] = asyncio.Queue()
        for judge in self.judges:
            self._free.put_nowait(judge)
        self._checking = asyncio.Lock()
        self._environment: Environment | None = None

    async def run(self, job: Job, on_stage: OnStage | None = None) -> JobResult:
        """Runs a job on the first free device. If the devices cannot form a pool, the result's `error` reports a host failure."""
        try:
            await self.ready()
        except OSError as error:
            return JobResult(error=str(error))
        judge = await self._free.get()
        try:
            return await judge.run(job, on_stage)
        finally:
            self._free.put_nowait(judge)

    async def ready(self) -> Environment:
        """Returns the environment of the first device. Raises `OSError` if a device cannot be used or is a different model from the first."""
        async with self._checking:
            if self._environment is None:
                self._environment = self._of_one_model(await asyncio.gather(*(judge.ready() for judge in self.judges)))
            return self._environment

    async def figures(self) -> dict[str, float]:
        await self.ready()
        return await self.judges[0].figures()

    async def close(self) -> None:
        await asyncio.gather(*(judge.close() for judge in self.judges))

    def _of_one_model(self, found: Sequence[Environment]) -> Environment:
        models = {name: environment.device_model for name, environment in zip(self.names, found, strict=True)}
        if len(set(models.values())) > 1:
            said = ", ".join(f"{name} is {model}" for name, model in models.items())
            raise OSError(f"the devices of a run must be of one model, since others are not comparable: {said}")
        return found[0]


def open_devices(given: str, opened: Callable[[str], Judge]) -> Judge:
    """Returns the client for one or more devices. `opened` opens the client for a single device."""
    names = names_of(given)
    return opened(names[0]) if len(names) == 1 else Devices(names, [opened(name) for name in names])
