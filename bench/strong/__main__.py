"""Measures `stitch` with a model whose replies are delivered by hand or by mail.

The compiler's program is the first candidate, and a GPU is held only while programs are verified.

    python -m bench.strong run KERNELBENCH --devices cuda:0,cuda:1 --keep KEPT [--share 3] [--limit-seconds 550] [--only PART]
    python -m bench.strong waiting --keep KEPT         (requests without a reply, one path a line)
    python -m bench.strong tables --keep KEPT          (writes bench/results/agents-strong.json and agents-strong.md)

`run` starts or resumes every run, and ends when each run has left a request, needs an unavailable device, or has ended. KEPT can be copied between
hosts; without a GPU, `run` continues up to the next request. A reply is REQUEST.reply.md next to its request, or is sent with `python -m agents
answer`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from agents.answering import waiting_in
from agents.journal import TRACE
from bench.strong.rows import ENDED, published
from bench.sweep.tasks import ROOT, items

PROFILE = '[profiles.strong]\nkind = "mailbox"\n'
EIGHT = (  # fp32-strict, everyday suite: tasks with the lowest gains over their best baselines in bench/results/everyday.md (2026-11-27)
    "domains/04_point_cloud_neighbours", "domains/12_graph_attention", "domains/14_continuous_filters", "library/2_mixtral_experts",
    "serving/06_experts_in_a_loop", "serving/07_experts_batched", "serving/09_int4_grouped_product", "serving/11_sampling",
)  # fmt: skip
OPTIONS = (
    "--planner built-in --coder strong --judge strong --first-program built-in --when-asked pause --budget-seconds 0 --budget-verifier-seconds 0"
)
PAUSED, INTERRUPTED = 5, 130
LEAST_SECONDS = 15.0  # minimum time left for starting another run


@dataclass
class Sitting:
    """One call of `run`. Each device executes `share` runs concurrently, and their verifiers take turns."""

    keep: Path
    end: float  # time.monotonic
    candidates: int

    def solve(self, name: str, task: Path, device: str) -> int:
        """Starts or resumes a run. Returns its exit code."""
        out = self.keep / name
        if (out / "summary.json").exists() and ended(out):
            return 0
        left = self.end - time.monotonic()
        if left < LEAST_SECONDS:
            return INTERRUPTED
        out.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "agents",
            "solve",
            str(task),
            "--out",
            str(out),
            "--data-dir",
            str(self.keep.parent / "strong-data" / device),
        ]
        command += ["--device", device]
        command += ["--resume"] if (out / TRACE).exists() else ["--budget-candidates", str(self.candidates), *OPTIONS.split()]
        environment = {**os.environ, "STITCHWORK_LLM_PROFILES": str(self.keep / "llm.toml")}
        with (out / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
            try:
                return process.wait(left)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                return process.wait(60)


def ended(out: Path) -> bool:
    return json.loads((out / "summary.json").read_text()).get("outcome") in ENDED


def tasks_of(checkout: Path | None, only: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yields the names and files of the eighteen tasks; those of KernelBench are included only if its checkout is given."""
    found = [(f"everyday-{name.replace('/', '-')}", ROOT / "bench" / "everyday" / f"{name}.py") for name in EIGHT]
    if checkout is not None:
        found += [(item.task.replace("/", "-"), item.path) for item in items(["stitchcuda-ten"], checkout)]
    return ((name, path) for name, path in found if not only or any(part in name for part in only))


def run(arguments: argparse.Namespace) -> int:
    keep = arguments.keep.resolve()
    keep.mkdir(parents=True, exist_ok=True)
    (keep / "llm.toml").write_text(PROFILE)
    sitting = Sitting(keep, time.monotonic() + arguments.limit_seconds, arguments.budget_candidates)
    devices = arguments.devices.split(",")
    pools = {device: ThreadPoolExecutor(arguments.share) for device in devices}
    tasks = list(tasks_of(arguments.checkout, arguments.only))
    calls = {
        pools[device].submit(sitting.solve, name, task, device): name for (name, task), device in zip(tasks, itertools.cycle(devices), strict=False)
    }
    for call in as_completed(calls):
        name, code = calls[call], call.result()
        print(f"{name}  {'paused' if code == PAUSED else f'code {code}'}  {' '.join(waiting(keep / name))}", flush=True)
    return 0


def waiting(out: Path) -> list[str]:
    """Returns the paths of a run's requests that have no reply."""
    if not (out / TRACE).exists():
        return []
    return [str(out / "requests" / f"{one.id}.md") for one in asyncio.run(waiting_in(out))]


def show_waiting(arguments: argparse.Namespace) -> int:
    for out in sorted(arguments.keep.iterdir()):
        print(*waiting(out), sep="\n", end="\n" if waiting(out) else "")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.strong", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    starts = commands.add_parser("run", help="start or resume all runs, to their next requests")
    starts.add_argument("checkout", nargs="?", type=Path, metavar="KERNELBENCH", help="its checkout; without it the eight everyday tasks alone")
    starts.add_argument("--devices", default="cuda:0", help="comma-separated")
    starts.add_argument("--share", type=int, default=3, metavar="N", help="runs at a time on a device")
    starts.add_argument("--limit-seconds", type=float, default=3600.0)
    starts.add_argument("--budget-candidates", type=int, default=3, metavar="N", help="the compiler's program included")
    starts.add_argument("--only", action="append", default=[], metavar="PART", help="only tasks with this in their name")
    starts.set_defaults(act=run)
    shows = commands.add_parser("waiting", help="requests without a reply")
    shows.set_defaults(act=show_waiting)
    prints = commands.add_parser("tables", help="rows and tables of what KEPT holds")
    prints.set_defaults(act=lambda given: published(given.keep))
    for one in (starts, shows, prints):
        one.add_argument("--keep", type=Path, required=True, metavar="KEPT", help="one folder a run")
    arguments = parser.parse_args()
    return int(arguments.act(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
