"""The judge's first second: parties start, and import torch, while the judge itself still does."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

from verifier import cgroup
from verifier.build.headers import Headers
from verifier.channel import Channel
from verifier.devices.base import DeviceError, open_device
from verifier.limits import Limits
from verifier.pool import Pool

MAX_JOB = 16 << 20


def main(device_name: str, data_dir: Path, fd: int, limits: Limits, spares: int, without_static: bool = False) -> int:
    """The judge's process: `fd` is the client's socket."""
    libc = ctypes.CDLL(None)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody of the same user reads this memory or environment
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's to handle
    channel = Channel(socket.socket(fileno=fd), max_json=MAX_JOB)
    os.set_inheritable(fd, False)
    cgroup.sweep()
    data_dir.mkdir(parents=True, exist_ok=True)
    try:
        device = open_device(device_name, data_dir, later=True)
        headers = Headers(data_dir)
        pool = Pool(device, limits, spares, [headers.bind])
        pool.refill()
        from verifier.judge import Judge  # imports torch

        device.open()
    except (DeviceError, ImportError) as error:
        channel.send({"type": "unusable", "error": str(error)})
        return 1
    Judge(data_dir, channel, pool, headers, without_static).serve()
    sys.stdout.flush()
    return 0
