"""The judge's first second: parties start, import torch and initialise their device while the judge itself is still importing modules.

This module and its top-level imports need only the standard library. A judge started for one job (from a command line) reads the job first and starts
only the parties that it needs. Each party receives its future role immediately, and a compiler for raw kernels starts before all others.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from verifier.build.headers import Headers
from verifier.build.raw import raw_requests
from verifier.build.raw_build import RawBuild
from verifier.channel import Channel, ChannelError
from verifier.confinement import cgroup
from verifier.confinement.probe import required
from verifier.devices.base import DeviceError
from verifier.devices.opening import open_device
from verifier.judge.opening import Opening
from verifier.judge.pool import Pool, Role
from verifier.limits import Limits
from verifier.startup.importing import swift_imports

MAX_JOB = 16 << 20
OTHER_SPARES = 2  # spare parties of a judge for one job that is not an evaluation


def main(argument: str) -> None:
    """Runs the judge's process until its client disconnects. `argument`: see `verifier.startup.starting`."""
    boot = json.loads(argument)
    libc = ctypes.CDLL(None)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: no other process of the same user can read this memory or environment
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the client
    os.set_inheritable(boot["fd"], False)
    channel = Channel(socket.socket(fileno=boot["fd"]), max_json=MAX_JOB)
    status = judge(boot, channel)
    sys.stdout.flush()
    os._exit(status)  # an orderly teardown of torch takes half a second and has no benefit


def judge(boot: dict[str, Any], channel: Channel) -> int:
    """Runs the judge and returns its exit status. The status is 1 if the client disconnected, or if the device cannot be used; in the second case,
    the client has been informed."""
    data_dir = Path(boot["data_dir"])
    data_dir.mkdir(parents=True, exist_ok=True)
    try:
        headers = Later(lambda: Headers(data_dir))
        sandbox = Later(required)
        process = time.monotonic()
        device = open_device(boot["device"], data_dir, later=True)
        device.take_processors()
        sandbox.value()
        pool = Pool(device, Limits(**boot["limits"]), boot["spares"])
        opening = None if boot["begun"] is None else read_job(boot["begun"], process, channel, pool)
        mark = unmarked if opening is None else opening.mark
        pool.builder_binds = [headers.value().bind]
        if opening is None:
            pool.refill()
        elif pool.coming:
            pool.builders.append(pool.spawn("builder"))
        device.begin()
        mark("parties")
        cgroup.sweep()
        with swift_imports():
            from verifier.judge.inbox import Inbox  # all of these need torch, whose import is the longest part of a start
            from verifier.judge.judge import Judge
            from verifier.judge.serving import serve
            from verifier.judge.single import answer
        mark("torch")
        device.open()
        mark("device")
        from verifier.startup.rehearsal import rehearse  # needs torch, which is only now there

        rehearse(device)
    except ChannelError:
        return 1  # the client is gone
    except (DeviceError, ImportError, OSError) as error:
        channel.send({"type": "unusable", "error": str(error)})
        return 1
    inbox = Inbox(channel, pool, None if opening is None else opening.frame)
    try:
        made = Judge(data_dir, inbox, pool, headers.value(), boot["without_static"], opening)
        serve(made) if opening is None else answer(made)
    except DeviceError as error:  # the device failed before the judge was ready
        channel.send({"type": "unusable", "error": str(error)})
        return 1
    return 0


def read_job(begun: float, process: float, channel: Channel, pool: Pool) -> Opening:
    """Reads this judge's only job and starts its parties. `begun` and `process` are the times at which its client and this process started."""
    opening = Opening(begun, channel.receive(pool.limits.start))
    opening.marks.append(("judge", process - begun))
    opening.mark("job")
    begin(opening, pool)
    return opening


def unmarked(what: str) -> None:
    """Records no opening, because a serving judge has no first job whose start a report would describe."""


class Later:
    """A value that a thread computes in the background."""

    def __init__(self, make: Any):
        self._made: Any = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=[make], daemon=True)
        self._thread.start()

    def _work(self, make: Any) -> None:
        try:
            self._made = make()
        except BaseException as failure:
            self._failure = failure

    def value(self) -> Any:
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._made


def begin(opening: Opening, pool: Pool) -> None:
    """Starts the processes that the job will need. The job is not yet validated; any job except an evaluation gets spares."""
    job = opening.frame.message.get("job")
    job = job if isinstance(job, dict) else {}
    if job.get("kind") != "verify":
        pool.spares = OTHER_SPARES
        pool.refill()
        pool.spares = 0
        return
    program, precision, mode = (str(job.get(name)) for name in ("program_source", "precision", "mode"))
    pool.extensions = "cpp_extension" in program
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # the `static` stage reports its faults
        requests = raw_requests(ast.parse(program))
        opening.raw = RawBuild(pool, requests) if requests else None
    roles: list[Role] = ["reference", "runner", "baseline"]
    if pool.device.kind == "cuda" and job.get("tier") == "quick":
        roles.append("runner")  # process in which the program's own kernels will be skipped
    pool.anticipate([(role, precision, mode) for role in roles])
