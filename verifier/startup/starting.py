"""Starts a judge process. This module uses only the standard library: the command line runs it first, and imports the rest while the judge starts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verifier.channel import HEADER, pair
from verifier.limits import Limits
from verifier.startup.bytecode import options

PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from verifier.judge.process import main; main(sys.argv[2])"
JUDGE_KEEPS = (
    *("LANG", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "SANDBOX"),
    *("CUTLASS_PATH", "CUTLASS_HOME", "CUTLASS_DIR"),
    *("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "STITCH_SHARING", "STITCH_STILL", "STITCH_TURNS"),
    "STITCH_TASK_IMPORTS",
    *("STITCH_NSYS", "STITCH_NSYS_LIBRARIES", "STITCH_NCU", "STITCH_COMPUTE_SANITIZER"),  # paths of tools that are in unusual locations on this host
)


def judge_environment() -> dict[str, str]:
    """Returns everything that a judge receives from its client's environment, which includes no key, no secret and no information about the user."""
    kept = {name: os.environ[name] for name in JUDGE_KEEPS if name in os.environ}
    path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {
        "PATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",  # the judge's own threads never spin while a party is timed
        # Tensors of a few recurring sizes are allocated and freed, so their pages are kept instead of being requested from the kernel each time.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
        "MALLOC_TOP_PAD_": str(64 << 20),
        **kept,
    }


@dataclass
class Started:
    """A judge's process, and the client's end of its socket."""

    process: subprocess.Popen[bytes]
    sock: socket.socket
    sent: bool = False  # whether a first job, numbered 1, has been sent


def start_judge(
    device: str, data_dir: Path, limits: Limits | None = None, spares: int = 0, without_static: bool = False, begun: float | None = None
) -> Started:
    """Starts a judge. With `begun` (the client's `time.monotonic()` at its start), the judge accepts one job, which must be sent immediately, and
    exits. Raises `OSError`."""
    ours, theirs = pair()
    boot = {
        "device": device,
        "data_dir": str(data_dir.resolve()),
        "fd": theirs.fileno(),
        "limits": asdict(limits or Limits()),
        "spares": spares,
        "without_static": without_static,
        "begun": begun,
    }
    try:
        process = subprocess.Popen(
            [sys.executable, *options(data_dir), "-c", BOOT, PACKAGE_PARENT, json.dumps(boot)],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env=judge_environment(),
            cwd="/",
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return Started(process, ours)


def start_job(job: dict[str, Any], device: str, data_dir: Path, begun: float) -> Started:
    """Starts a judge for this job alone."""
    started = start_judge(device, data_dir, begun=begun)
    body = json.dumps({"type": "job", "id": 1, "job": job}).encode()
    started.sock.settimeout(60)
    try:
        started.sock.sendall(HEADER.pack(len(body), 0) + body)
    except OSError:
        pass  # the judge is gone; the caller that waits for its answer receives the reason
    started.sent = True
    return started
