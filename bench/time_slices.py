"""Measures how long a tiny kernel waits for a GPU on which another process runs a kernel for seconds.

The tiny kernel is launched both alone after a pause and directly after another launch.

    python bench/time_slices.py --device cuda:0 [--seconds 8] --out FILE.json

A judge infers from such waits whether the device is idle (`judge/gate.py`) and whether a program leaves it alone (`timing/idleness.py`). The other
process is stopped (SIGSTOP) as soon as it has launched one kernel of the given duration, like a party that is paused while another judge measures.
FILE contains the duration of each wait in milliseconds, during that kernel and after its end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

PAUSE = 0.02  # seconds between two checks
KERNEL = """
import sys, torch
device = torch.device(sys.argv[1])
torch.zeros(1, device=device)
torch.cuda.synchronize(device)
with torch.cuda.device(device):
    torch.cuda._sleep(int(float(sys.argv[2]) * 1.7e9))  # cycles of some 1.7 GHz
print("launched", flush=True)
torch.cuda.synchronize(device)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=8.0, help="of the other process's kernel")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    import torch

    device = torch.device(arguments.device)
    probe = torch.zeros(32, device=device)

    def wait() -> float:
        begin = time.monotonic_ns()
        probe.add_(1)
        torch.cuda.synchronize(device)
        return (time.monotonic_ns() - begin) / 1e6

    def looks(seconds: float) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {"after a pause": [], "right after another": []}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for name in found:
                found[name].append(round(wait(), 4))
            time.sleep(PAUSE)
        return found

    for _ in range(5):
        wait()  # the first launches load the kernel
    other = subprocess.Popen([sys.executable, "-c", KERNEL, arguments.device, str(arguments.seconds)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    other.stdout.readline()
    os.kill(other.pid, signal.SIGSTOP)
    beside = looks(arguments.seconds / 2)
    os.kill(other.pid, signal.SIGCONT)
    other.wait()
    result = {"device": torch.cuda.get_device_name(device), "kernel_seconds": arguments.seconds, "beside": beside, "at rest": looks(1.0)}
    arguments.out.write_text(json.dumps(result) + "\n")
    for when in ("beside", "at rest"):
        for name, waits in result[when].items():
            print(f"{when}, {name}: median {statistics.median(waits):.3f} ms, {min(waits):.3f} to {max(waits):.3f} of {len(waits)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
