"""Records who uses a host's processors and its GPU while a session is running:

    python bench/occupancy.py --out FILE.json [--every 0.5]      until SIGTERM or SIGINT

Records processor time by kind of process (a process that begins and ends between two samples is missed), the host's load over time, and the fractions
of time in which a judge had the device to itself (`measuring`), waited for others to stop (`draining`), or no judge requested the device (`free`),
according to the lock files of `judge/gate.py`. `memory` is the GPU memory in MiB that nvidia-smi reports, every two seconds, for each of a sweep's
workers (by data folder), including all its child processes. Nothing is stopped, and no process is queried.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir

TICK = os.sysconf("SC_CLK_TCK")
LOCKS_EVERY = 0.05  # seconds
MEMORY_EVERY = 2.0
PROGRAMS = {  # by program name
    "nvcc": {"nvcc", "cicc", "ptxas", "cudafe++", "fatbinary", "nvlink"},
    "host compiler": {"cc1plus", "g++", "gcc", "c++", "ld", "collect2", "as", "lto1", "x86_64-linux-gn"},
    "bubblewrap": {"bwrap"},
}
COMMANDS = [  # the first entry whose words all occur in the command line applies
    ("inductor's workers", ("compile_worker",)),
    ("party", ("verifier.parties.party",)),
    ("judge", ("verifier.judge.process",)),
    ("solver", ("bench.sweep.device", "-m agents")),
    ("sweep", ("bench.sweep",)),
]


class Processes:
    """Processor seconds of every observed process, keyed by process and start time."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], dict] = {}
        self.first = True

    def look(self) -> None:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):
                name, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
                fields = rest.split()
                key = int(folder.name), int(fields[19])
                seconds = (int(fields[11]) + int(fields[12])) / TICK
                if key not in self.seen:
                    program = name.partition("(")[2]
                    command = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
                    before = seconds if self.first else 0.0
                    self.seen[key] = {"kind": kind(program, command), "command": command[-100:], "first": time.monotonic(), "before": before}
                self.seen[key] |= {"seconds": seconds, "last": time.monotonic()}
        self.first = False

    def table(self) -> dict[str, dict]:
        kinds = defaultdict(list)
        for process in self.seen.values():
            kinds[process["kind"]].append(process)
        found = {}
        for name, members in kinds.items():
            spent = sorted(((one["seconds"] - one["before"], one["last"] - one["first"], one["command"]) for one in members), reverse=True)
            found[name] = {
                "processes": len(members),
                "seconds": round(sum(seconds for seconds, _, _ in spent), 1),
                "each": [[round(seconds, 1), round(lived, 1)] for seconds, lived, _ in spent],
                "dearest": [command for _, _, command in spent[:5]],
            }
        return dict(sorted(found.items(), key=lambda pair: -pair[1]["seconds"]))


def kind(program: str, command: str) -> str:
    by_program = next((name for name, programs in PROGRAMS.items() if program in programs), None)
    return by_program or next((name for name, words in COMMANDS if any(word in command for word in words)), "other")


class Turns:
    def __init__(self) -> None:
        self.looks = {"measuring": 0, "draining": 0, "free": 0}
        self.runs: list[tuple[str, float]] = []  # the gate's state, and how long it has been unchanged
        self.since, self.now = time.monotonic(), "free"

    def look(self) -> None:
        files = {}
        for path in Path(gettempdir()).glob("stitchwork-*"):
            if path.suffix in (".turn", ".floor"):
                with suppress(OSError):
                    files[path.stat().st_ino] = path.suffix
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines() if " WRITE " in line and "->" not in line]
        held = {files.get(int(fields[5].rpartition(":")[2])) for fields in locks}
        state = "measuring" if {".turn", ".floor"} <= held else "draining" if ".turn" in held else "free"
        self.looks[state] += 1
        if state != self.now:
            self.runs.append((self.now, round(time.monotonic() - self.since, 2)))
            self.since, self.now = time.monotonic(), state


class Memory:
    """Samples GPU memory by worker; memory that belongs to no worker is "other"."""

    def __init__(self) -> None:
        self.command = [shutil.which("nvidia-smi"), "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
        self.looks: list[tuple[float, dict[str, int]]] = []

    def look(self, now: float) -> None:
        if self.command[0] is None:
            return
        said = subprocess.run(self.command, capture_output=True, text=True).stdout
        used: dict[str, int] = defaultdict(int)
        for pid, megabytes in re.findall(r"^(\d+), (\d+)$", said, flags=re.M):
            used[worker(int(pid))] += int(megabytes)
        self.looks.append((round(now, 1), dict(used)))

    def most(self) -> dict[str, int]:
        names = {name for _, used in self.looks for name in used}
        return {name: max(used.get(name, 0) for _, used in self.looks) for name in sorted(names)}


def worker(pid: int) -> str:
    """Returns the data folder of the sweep's worker that is an ancestor of a process."""
    with suppress(OSError, ValueError, IndexError):
        while pid > 1:
            command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
            if "bench.sweep.device" in command:
                return Path(command[command.index("--data-dir") + 1]).name
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return "other"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two looks at the processes")
    arguments = parser.parse_args()
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: ended.append(number))
    processes, turns, memory, loads = Processes(), Turns(), Memory(), []
    begin, next_look, next_load, next_memory = time.monotonic(), 0.0, 0.0, 0.0
    while not ended:
        now = time.monotonic() - begin
        turns.look()
        if now >= next_look:
            processes.look()
            next_look = now + arguments.every
        if now >= next_load:
            busy = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
            loads.append((round(now), round((sum(busy) - busy[3] - busy[4]) / TICK, 1), *map(float, Path("/proc/loadavg").read_text().split()[:1])))
            next_load = now + 10
        if now >= next_memory:
            memory.look(now)
            next_memory = now + MEMORY_EVERY
        time.sleep(LOCKS_EVERY)
    facts = {"processors": os.cpu_count(), "allowed": len(os.sched_getaffinity(0)), "seconds": round(time.monotonic() - begin, 1)}
    document = facts | {"device": turns.looks, "turns": turns.runs, "kinds": processes.table(), "busy_seconds_and_load": loads}
    document |= {"memory": {"most": memory.most(), "looks": memory.looks}} if memory.looks else {}
    arguments.out.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
