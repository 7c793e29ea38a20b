"""The interface through which the rest of Stitchwork requests a verdict: `Verifier(device, data_dir).run(job)`. It owns one judge process and
restarts it if it dies."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from verifier.channel import HEADER
from verifier.jobs import Job, JobResult, StageEvent
from verifier.limits import Limits
from verifier.report import Environment
from verifier.startup.starting import Started, start_judge

OnStage = Callable[[StageEvent], "None | Awaitable[None]"]
MAX_JSON = 64 << 20
MAX_TIMELINE = 256 << 20
CANCEL_SECONDS = 5
END_SECONDS = 3


class JudgeGone(ConnectionError):
    """Raised when the judge process ends in the middle of a job."""


class Verifier:
    """A verifier for one device. It runs jobs from several callers sequentially; cancelling a caller ends that caller's job.

    `without_static` exists for tests of the later stages. No job can request it, and its reports are marked and never count as results. `started` is
    a judge that already has its first job (`verifier.startup.starting.start_job`)."""

    def __init__(
        self,
        device: str,
        data_dir: Path | str,
        limits: Limits | None = None,
        spares: int = 3,
        without_static: bool = False,
        started: Started | None = None,
    ):
        self.device = device
        self.data_dir = Path(data_dir)
        self.limits = limits or Limits()
        self.spares = spares
        self.without_static = without_static
        self.environment: Environment | None = None
        self._figures: dict[str, float] = {}
        self._started = started
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._turn = asyncio.Lock()
        self._number = 0

    async def run(self, job: Job, on_stage: OnStage | None = None) -> JobResult:
        """Runs a job and returns its result. If the judge dies, restarts it and runs the job once more. If it dies again, the result contains an
        `error`."""
        async with self._turn:
            for attempt in (1, 2):
                try:
                    return await self._run(job, on_stage)
                except JudgeGone as gone:
                    await self._stop()
                    if attempt == 2:
                        return JobResult(error=f"the judge process died twice while it worked on this job ({gone})")
                except asyncio.CancelledError:
                    await asyncio.shield(self._cancel())
                    raise
        raise AssertionError("unreachable")

    async def _run(self, job: Job, on_stage: OnStage | None) -> JobResult:
        sent = self._started is not None and self._started.sent
        unusable = await self._start()
        if unusable:
            return JobResult(error=unusable)
        self._number += 1
        number = self._number
        if not sent:
            await self._send({"type": "job", "id": number, "job": job.model_dump(mode="json")})
        while True:
            message, raw = await self._receive()
            if message.get("id") != number:
                continue  # a message left over from a cancelled job
            if message["type"] == "stage" and on_stage is not None:
                outcome = on_stage(StageEvent.model_validate(message["event"]))
                if inspect.isawaitable(outcome):
                    await outcome
            elif message["type"] == "result":
                result = JobResult.model_validate(message["result"])
                result.timeline = raw or None
                return result
            elif message["type"] == "cancelled":
                return JobResult(error="cancelled")

    async def ready(self) -> Environment:
        """Starts the judge if necessary, and returns its measurement environment. Raises `OSError` with the reason if the device cannot be used."""
        async with self._turn:
            unusable = await self._start()
        if unusable or self.environment is None:
            raise OSError(unusable or "the judge did not start")
        return self.environment

    async def figures(self) -> dict[str, float]:
        """Returns the ceilings that planning uses: `bandwidth_gbs` and `fp32_gflops`. A value of 0 means unknown. On a GPU, it also returns measured
        values (`Device.reached`). Raises the same exceptions as `ready`."""
        await self.ready()
        return self._figures

    async def close(self) -> None:
        """Terminates the judge and everything that it started."""
        async with self._turn:
            await self._stop()

    @property
    def judge_pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def _start(self) -> str:
        if self._process is not None and self._process.poll() is None:
            return ""
        await self._stop()
        started, self._started = self._started, None
        if started is None:
            started = start_judge(self.device, self.data_dir, self.limits, self.spares, self.without_static)
        self._process = started.process
        self._reader, self._writer = await asyncio.open_connection(sock=_stream(started.sock))
        try:
            message, _ = await self._receive()
        except JudgeGone as gone:
            await self._stop()
            return f"the judge did not start ({gone}); its messages are on standard error"
        if message["type"] == "unusable":
            await self._stop()
            return str(message["error"])
        self.environment = Environment.model_validate(message["environment"])
        self._figures = {str(name): float(value) for name, value in message["figures"].items()}
        return ""

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        body = json.dumps(message).encode()
        try:
            self._writer.write(HEADER.pack(len(body), 0) + body)
            await self._writer.drain()
        except OSError as error:
            raise JudgeGone(str(error)) from None

    async def _receive(self) -> tuple[dict[str, Any], bytes]:
        assert self._reader is not None
        try:
            length, raw_length = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            if length > MAX_JSON or raw_length > MAX_TIMELINE:
                raise JudgeGone("an answer that is too large")
            body = await self._reader.readexactly(length)
            raw = await self._reader.readexactly(raw_length) if raw_length else b""
        except (asyncio.IncompleteReadError, OSError) as error:
            raise JudgeGone(type(error).__name__) from None
        return json.loads(body), raw

    async def _cancel(self) -> None:
        """Asks the judge to abandon the job, and kills the judge if it does not."""
        try:
            await self._send({"type": "cancel", "id": self._number})
            async with asyncio.timeout(CANCEL_SECONDS):
                while True:
                    message, _ = await self._receive()
                    if message.get("id") == self._number and message["type"] in ("cancelled", "result"):
                        return
        except (JudgeGone, TimeoutError, AssertionError):
            await self._stop()

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if self._writer is not None:
            self._writer.close()
            self._reader = self._writer = None
        if process is None:
            return
        deadline = time.monotonic() + END_SECONDS  # the judge notices that its client has disconnected and terminates its parties
        while process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.wait)


def _stream(sock: socket.socket) -> socket.socket:
    sock.setblocking(False)
    return sock
