"""Captures tasks' graphs in a separate process and caches them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress

from verifier.graph import Capture
from verifier.source import sha256

PATIENCE = 120.0  # seconds that one capture may take on a busy machine
LINE = 64 << 20  # bytes; limit for the longest answer


class CannotCapture(RuntimeError):
    """Raised if the task does not run, or if the process that ran it ended."""


class Capturer:
    """Captures in one process, which is started when it is first needed, and keeps the results."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._one = asyncio.Lock()
        self._known: dict[tuple[str, str], Capture] = {}
        self._going: dict[tuple[str, str], asyncio.Task[Capture]] = {}

    async def capture(self, source: str, mode: str) -> Capture:
        """Returns a graph. Raises `CannotCapture`. If a caller stops waiting, the capture continues, and its result serves the next request."""
        key = (sha256(source), mode)
        if key in self._known:
            return self._known[key]
        if key not in self._going:
            self._going[key] = asyncio.create_task(self._capture(source, mode))
            self._going[key].add_done_callback(lambda task: self._done(key, task))
        return await asyncio.shield(self._going[key])

    def _done(self, key: tuple[str, str], task: asyncio.Task[Capture]) -> None:
        self._going.pop(key, None)
        if not task.cancelled() and task.exception() is None:
            self._known[key] = task.result()

    async def _capture(self, source: str, mode: str) -> Capture:
        async with self._one:
            return await self._ask(source, mode)

    async def _ask(self, source: str, mode: str) -> Capture:
        if self._process is None or self._process.returncode is not None:
            command = [sys.executable, "-m", "tests.standin.capture_process"]
            pipe = asyncio.subprocess.PIPE
            environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
            self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment, limit=LINE)
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"source": source, "mode": mode}).encode() + b"\n")
            await self._process.stdin.drain()
            line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        except (TimeoutError, ConnectionError):
            line = b""
        if not line:
            await self._end()
            raise CannotCapture("the task ended the process that captured it, or took too long")
        answer = json.loads(line)
        if "error" in answer:
            raise CannotCapture(answer["error"])
        return Capture.model_validate(answer["capture"])

    async def close(self) -> None:
        for task in list(self._going.values()):
            task.cancel()
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
