"""Parties that have no sandbox and skip the 2 s that importing torch takes, because they are forked from one process that has imported it. They are
suitable for testing a judge's decisions; confinement, memory limits and a fresh interpreter are tested with real parties.

`python forked.py FD` runs the process that forks; `Nursery` is its counterpart.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of this folder

from verifier.channel import Channel, ChannelClosed, pair  # noqa: E402
from verifier.confinement.spawned import Spawned  # noqa: E402
from verifier.devices.base import Bind, Device  # noqa: E402
from verifier.judge.asking import Party  # noqa: E402
from verifier.judge.pool import Pool  # noqa: E402
from verifier.limits import Limits  # noqa: E402
from verifier.parties import party  # noqa: E402

MESSAGE = 1 << 20


class Nursery:
    """The forking process, as seen by a test."""

    def __init__(self) -> None:
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        command = [sys.executable, __file__, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, cwd=ROOT)
        theirs.close()
        self.lock = threading.Lock()
        self.open = True

    def ask(self, message: dict[str, Any], fds: list[int]) -> Any:
        with self.lock:
            if not self.open:  # and all processes forked from it
                return -signal.SIGKILL
            socket.send_fds(self.sock, [json.dumps(message).encode()], fds)
            answer = self.sock.recv(MESSAGE)
        assert answer, "the process that forks has ended"
        return json.loads(answer)

    def close(self) -> None:
        with self.lock:
            self.open = False
            self.sock.close()
        self.process.wait(20)


class Forked:
    """The part of `subprocess.Popen` that `verifier.confinement.spawned.Spawned` uses."""

    def __init__(self, nursery: Nursery, channel: int, home: str, variables: dict[str, str]):
        self.nursery = nursery
        reading, writing = os.pipe()
        self.pid: int = nursery.ask({"home": home, "variables": variables}, [channel, writing])
        os.close(writing)
        self.stdout = os.fdopen(reading, "rb", buffering=0)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.nursery.ask({"pid": self.pid}, [])
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(self.pid)
            waiting = select.poll()
            waiting.register(fd, select.POLLIN)
            waiting.poll(None if timeout is None else timeout * 1000)
            os.close(fd)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("a forked party", timeout or 0)
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def forked_device(device: Device) -> None:
    """A device with one thread per side, because nothing is timed here and spinning threads would take processor time from other tests."""
    device.threads = 1  # type: ignore[attr-defined]
    device.open()


class ForkingPool(Pool):
    """A pool whose parties are forked on demand, so it keeps none in reserve."""

    def __init__(self, device: Device, limits: Limits, nursery: Nursery, builder_binds: list[Bind] | None = None):
        super().__init__(device, limits, spares=0, builder_binds=builder_binds)
        self.nursery = nursery

    def spawn(self, role: str = "device", *rest: Any, **options: Any) -> Party:
        self.gate.point()
        ours, theirs = pair()
        home = tempfile.mkdtemp(prefix="stitch-party-")
        process = Forked(self.nursery, theirs.fileno(), home, self.device.variables(role))
        theirs.close()
        spawned = Spawned(process, Channel(ours), self.limits, None, home, False)  # type: ignore[arg-type]
        spawned.start_drain()
        party = Party(spawned, self.device, self.limits, self.gate)
        party.on_device = role != "builder"
        return party


def serve(control: socket.socket) -> None:
    """Forks until the test has ended."""
    statuses: dict[int, int] = {}
    while True:
        data, fds, _, _ = socket.recv_fds(control, MESSAGE, 2)
        if not data:
            return
        message = json.loads(data)
        if "home" in message:
            answer: int | None = fork(control, fds, message)
        else:
            answer = status_of(message["pid"], statuses)
        control.send(json.dumps(answer).encode())


def fork(control: socket.socket, fds: list[int], message: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        for fd in fds:
            os.close(fd)
        return pid
    try:
        control.close()
        become_party(fds, message)
    finally:
        os._exit(1)


def become_party(fds: list[int], message: dict[str, Any]) -> None:
    """Does what `verifier.parties.party.main` does, but without confinement or imports."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    for stream in (1, 2):
        os.dup2(fds[1], stream)
    os.environ.update(message["variables"], HOME=message["home"], TMPDIR=message["home"])
    tempfile.tempdir = None
    os.chdir(message["home"])
    channel = Channel(socket.socket(fileno=fds[0]), accept_fds=True)
    faulthandler.enable()
    channel.send({"type": "ready"})
    with contextlib.suppress(ChannelClosed):
        party.serve(channel, message["home"])
    sys.stdout.flush()
    os._exit(0)


def status_of(pid: int, statuses: dict[int, int]) -> int | None:
    if pid not in statuses:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return None
        statuses[pid] = os.waitstatus_to_exitcode(status)
    return statuses[pid]


if __name__ == "__main__":
    party.import_all(extensions=True)
    serve(socket.socket(fileno=int(sys.argv[1])))
