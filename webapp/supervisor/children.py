"""Starts child processes that never outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    when_parent_dies: signal.Signals,
    output: IO[bytes] | int | None = None,
    directory: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts `command` in a new session, so that Ctrl-C reaches only us and we can stop the children in order.

    The kernel sends `when_parent_dies` when the calling *thread* ends, so call this from the main thread.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        _prctl(PR_SET_PDEATHSIG, int(when_parent_dies), 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the call above
            os._exit(1)

    return subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        cwd=directory,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def stop(process: subprocess.Popen[bytes], by: signal.Signals, patience: float) -> None:
    """Sends a signal, waits, and kills the process if it is still alive. Returns once the process has ended."""
    if process.poll() is None:
        process.send_signal(by)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
