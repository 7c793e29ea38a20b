"""A judge that serves jobs for one client, one after another, and keeps everything that the next job can use: spares, the reference, headers and byte
code."""

from __future__ import annotations

import contextlib
import gc
import time

from verifier.devices.base import DeviceError
from verifier.judge.judge import Judge
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Cancelled
from verifier.startup import bytecode

SESSION_BYTES = 8 << 30  # device memory that a waiting reference may hold: context, task, cached blocks
LEAK_BYTES, FIRST_BYTES = 512 << 20, 2 << 30  # device memory; the judge itself loads kernels and libraries during its first jobs
GIVEN_BACK_SECONDS = 10.0


def serve(judge: Judge) -> None:
    """Serves until the client disconnects or the device is lost. In the latter case, the client starts another judge, which has a new context."""
    device, pool, inbox = judge.device, judge.pool, judge.inbox
    inbox.begin()
    if device.rehearsal is not None:
        device.rehearsal.join()
    with pool.gate.alone():
        reached = device.reached()
    memory = Memory(judge)
    pool.refill()
    judge.ready(reached)
    while (frame := inbox.next()) is not None:
        result = judge.result(frame)
        pool.forget()
        pool.reap()
        leaked = memory.leaked()
        if leaked and result.report is not None:
            result.report.reasons["gpu_memory"] = leaked
        wanted = judge.answer(frame, result)
        if device.lost:
            break
        pool.refill()
        if wanted and inbox.empty:
            with contextlib.suppress(PartyFailure, Cancelled):  # the client may be gone; otherwise, a build creates the headers when it needs them
                judge.headers.begin(pool)
            bytecode.begin(judge.data_dir)
            device.rest()
    judge.close()


class Memory:
    """Tracks device memory between jobs in order to find memory that a job did not release."""

    def __init__(self, judge: Judge):
        self.judge = judge
        self.device = judge.device
        self.free_at_rest = self.device.free_bytes()  # free bytes when no party held any device memory; null if the device uses host memory
        self.settled = False  # whether the judge has loaded its own kernels and libraries, which stay loaded

    def leaked(self) -> str:
        """Reports how much device memory a job did not release. Returns an empty string if it released everything. The parties of a job are dead by
        this point, except for a reference that the next job will use. If much memory is missing, the reference is also terminated, and the
        device is examined again."""
        before = self.free_at_rest
        free = self.device.free_bytes()
        try:
            shared = self.judge.pool.gate.others()
        except DeviceError:  # the next job reports the reason
            shared = True
        if before is None or free is None or shared:  # the owner of the memory is unknown
            return ""
        if free < before - SESSION_BYTES:
            self.judge.end_session()
            gc.collect()  # tensors still held by an exception's frames
        if self.judge.session is not None or self.judge.foreseen is not None:
            return ""
        deadline = time.monotonic() + GIVEN_BACK_SECONDS
        while free is not None and free < before - LEAK_BYTES and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.1)  # the driver frees a killed process's memory shortly after its end
            free = self.device.free_bytes()
        if free is None or free >= before - LEAK_BYTES:
            self.settled = True
            return ""
        first, self.free_at_rest, self.settled = not self.settled, free, True  # reported only once
        if first and before - free < FIRST_BYTES:
            return ""
        return f"{(before - free) / 2**30:.2f} GiB of GPU memory were not released within {GIVEN_BACK_SECONDS:g} s, or another process has taken them"
