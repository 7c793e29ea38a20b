"""Tests whether all sides of a measurement are treated alike.

The same model is measured as eager and as the program, each in several fresh processes, all of them timed in turn:

    python bench/sides.py --device cuda:0 --out FILE.json [--task small|chain|PATH] [--processes 5] [--blocks 40] [--beside 8] [--ways WAY,WAY]

Any gain of a program on its own task is a measurement error. There are two ways to measure. `watched` works like the judge: half of the programs are
paused while others are timed, after a check that they are idle. Half of the eager processes are treated in the same way, which separates the effect
of the role from the effect of being watched. `plain` uses a random order and watches no process. With `--beside N` there are two more ways, both
`watched` while N processes are busy on the judge's processors, as those of other judges would be (`STITCH_STILL=device`). In `beside`, they import
torch repeatedly; in `compiling`, they hold a device context and run torch.compile without their permits. Each result is written to FILE as soon as it
is measured. Prints one line per kind: microseconds per call relative to an eager process that is not watched, with the standard error over processes,
the variation between calls and between processes, and the slowdown of calls just after a pause.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import os
import pstats
import random
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from verifier.build.artefacts import NONE  # noqa: E402
from verifier.correctness.calling import Subject  # noqa: E402
from verifier.correctness.trials import Trials  # noqa: E402
from verifier.devices.opening import open_device  # noqa: E402
from verifier.jobs import VerifyJob  # noqa: E402
from verifier.judge.asking import Party  # noqa: E402
from verifier.judge.pool import Pool, Role  # noqa: E402
from verifier.judge.session import ReferenceSession  # noqa: E402
from verifier.limits import Limits  # noqa: E402
from verifier.parties.permit import Permit  # noqa: E402
from verifier.timing import blocks as timing  # noqa: E402
from verifier.timing import idleness  # noqa: E402
from verifier.timing.blocks import Side, measure  # noqa: E402
from verifier.timing.host_repeatability import repeatability  # noqa: E402
from verifier.timing.idleness import Watch  # noqa: E402
from verifier.timing.outside import middle  # noqa: E402
from verifier.timing.pairs import shuffled  # noqa: E402
from verifier.timing.tournament import Tournament  # noqa: E402

HEAD = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.randn(64, 64)]\n\n\ndef get_init_inputs():\n    return []\n"
TASKS = {
    "small": HEAD + "    def forward(self, x):\n        return torch.relu(x)\n" + TAIL,
    "chain": HEAD
    + "    def __init__(self):\n        super().__init__()\n"
    + "        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(24)])\n\n"
    + "    def forward(self, x):\n        return self.layers(x)\n"
    + TAIL,
}
WAYS = ("watched", "plain", "beside", "compiling")
KINDS = ("eager", "eager, watched", "program", "program, watched")
WARM_UP = 10


def noting_pauses(sides: list[Side]) -> dict[int, list[int]]:
    """Starts recording, for each side, whether a call came just after a pause (1) or not (0)."""
    plain, noted = idleness.pause, {id(side): [] for side in sides}
    fresh: list[int] = []

    def pause(*given: Any, **named: Any) -> None:
        plain(*given, **named)
        fresh.append(1)

    def noting(side: Side) -> Callable[..., Any]:
        call = side.caller.call

        def noted_call(*given: Any, **named: Any) -> Any:
            noted[id(side)].append(len(fresh))
            fresh.clear()
            return call(*given, **named)

        return noted_call

    timing.pause = pause
    for side in sides:
        side.caller.call = noting(side)  # type: ignore[method-assign]
    return noted


@contextlib.contextmanager
def importing(count: int) -> Iterator[None]:
    """Runs `count` busy processes on this process's processors."""
    again = f"import os, subprocess, sys\nwhile os.getppid() == {os.getpid()}: subprocess.run([sys.executable, '-c', 'import torch'])"
    command = [sys.executable, "-c", again]  # they end together with this process, however it ends
    neighbours = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            os.killpg(neighbour.pid, signal.SIGKILL)
            neighbour.wait()


COMPILER = """
import ctypes
import signal
import sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # it ends with its parent, however that ends
sys.path.insert(0, sys.argv[1])
import torch
from torch import nn
from verifier.parties.compiling import Compiling
from verifier.parties.permit import Permit
device = sys.argv[3]
own = Permit.made()
own.take()
hooks = Compiling(own, torch.cuda.synchronize if device.startswith("cuda") else lambda: None)
hooks.permit = Permit(int(sys.argv[2]))  # the imports are done: the one that is waited for is put back at the compilation
sizes = range(64, 64 + 8 * 150, 8)
model = nn.Sequential(*[nn.Sequential(nn.Linear(n, n + 8), nn.LayerNorm(n + 8), nn.GELU()) for n in sizes]).to(device)
with torch.no_grad():
    torch.compile(model)(torch.randn(16, 64, device=device))
"""


@contextlib.contextmanager
def compiling(count: int, device: str) -> Iterator[None]:
    """Runs `count` processes whose compilations take half a minute or more. This process holds their permits, so a process that has finished one
    compilation waits."""
    environment = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    permits = [Permit.made() for _ in range(count)]
    neighbours = []
    try:
        for permit in permits:
            permit.take_now()
            command = [sys.executable, "-c", COMPILER, str(ROOT), str(permit.fd), device]
            neighbours.append(subprocess.Popen(command, start_new_session=True, pass_fds=[permit.fd], env=environment))
        for permit, neighbour in zip(permits, neighbours, strict=True):
            while not permit.take_now():
                if neighbour.poll() is not None:
                    raise SystemExit("a process that was to compile beside has ended: its messages are above")
                time.sleep(0.1)
        yield
    finally:
        for neighbour in neighbours:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(neighbour.pid, signal.SIGKILL)
            neighbour.wait()
        for permit in permits:
            permit.close()


def own_candidate(source: str) -> str:
    return re.sub(r"super\(Model, self\)", "super(ModelNew, self)", re.sub(r"\bclass Model\(", "class ModelNew(", source))


class Bench:
    def __init__(self, arguments: argparse.Namespace, data_dir: Path):
        self.arguments = arguments
        self.device = open_device(arguments.device, data_dir, later=True)
        self.device.take_processors()
        self.device.open()
        self.limits = Limits(memory=64 << 30, correctness=0.5)
        self.pool = Pool(self.device, self.limits, spares=0)
        self.data_dir = data_dir

    @classmethod
    def once(cls, arguments: argparse.Namespace) -> None:
        """Measures once with a separate data folder, which is removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="sides-") as data:
            bench = cls(arguments, Path(data))
            try:
                bench.run()
            finally:
                bench.pool.close()

    def run(self) -> None:
        task = self.arguments.task
        source = TASKS[task] if task in TASKS else Path(task).read_text()
        session = ReferenceSession(self.pool, source, "fp32-strict", "train")
        trials = Trials(session, secrets.randbits(48), full=False, on_progress=lambda text: None)
        trials.prepare()
        job = VerifyJob(task_source=source, program_source=own_candidate(source), tier="full")
        enlist = partial(self._enlist, job.program_source)
        tournament = Tournament(self.pool, trials, job, secrets.randbits(48), enlist, repeatability(self.data_dir, self.device), others=[])
        ways: list[dict[str, Any]] = []
        beside = self.arguments.beside
        for way in self.arguments.ways:
            with importing(beside if way == "beside" else 0), compiling(beside if way == "compiling" else 0, self.arguments.device):
                ways.append({"way": way, **self._measure(trials, tournament, enlist, way)})
            print(table(ways[-1]), flush=True)
            found = {"device": self.device.environment().model_dump(), "task": task, "blocks": self.arguments.blocks, "ways": ways}
            self.arguments.out.write_text(json.dumps(found) + "\n")

    def _measure(self, trials: Trials, tournament: Tournament, enlist: Any, way: str) -> dict[str, Any]:
        """Measures all sides. `kinds` holds, for each kind, every process's blocks in milliseconds. `paused` holds lists of the same structure that
        mark calls just after a pause."""
        kinds = [kind for kind in KINDS for _ in range(self.arguments.processes)]
        roles: list[Role] = ["runner" if kind.startswith("program") else "baseline" for kind in kinds]
        parties = shuffled(self.pool.take_all, [(role, "fp32-strict", "train") for role in roles], secrets.randbits(48))

        def come(role: Role, party: Party) -> Side:
            if role == "baseline":
                return tournament._baseline("eager", party)
            subject = enlist(party)
            trials.reconstruct(subject, stay=False)
            assert subject.caller is not None
            return Side(None, subject.caller)

        sides = self.pool.at_once([partial(come, role, party) for role, party in zip(roles, parties, strict=True)])
        try:
            for side in sides:
                side.caller.party.rest(anew=True)
            for number in range(WARM_UP):
                values, seed = tournament._draw(number)
                for side in sides:
                    side.caller.call(values, seed)
            for side in sides:
                side.caller.party.rest()
            watches = [Watch(side.caller.party) for side, kind in zip(sides, kinds, strict=True) if kind.endswith("watched")]
            for side, kind in zip(sides, kinds, strict=True):
                side.caller.watches = [] if kind.endswith("watched") or way == "plain" else watches
            paused = noting_pauses(sides)
            with cProfile.Profile() if self.arguments.profile else contextlib.nullcontext() as profiled:
                begun = time.monotonic()
                measure(sides, tournament._draw, lambda *_: None, random.Random(secrets.randbits(48)), WARM_UP, self.arguments.blocks)
            if profiled is not None:
                calls = 2 * len(sides) * self.arguments.blocks
                print(f"{way}: {(time.monotonic() - begun) / calls * 1e3:.2f} ms of the judge's a call, of {calls}", flush=True)
                pstats.Stats(profiled).sort_stats("cumulative").print_stats(r"verifier|\{", 40)
        finally:
            for party in parties:
                self.pool.give_back(party)
        found: dict[str, list[list[list[float]]]] = {kind: [] for kind in KINDS}
        after: dict[str, list[list[int]]] = {kind: [] for kind in KINDS}
        for side, kind in zip(sides, kinds, strict=True):
            found[kind].append([[round(value, 6) for value in block] for block in side.blocks])
            after[kind].append(paused[id(side)])
        return {"kinds": found, "paused": after}

    def _enlist(self, program: str, runner: Party) -> Subject:
        runner.import_program(program, NONE, self.limits.load)
        return Subject(runner)


def table(way: dict[str, Any]) -> str:
    middles = {kind: [1e3 * middle([value for block in blocks for value in block]) for blocks in way["kinds"][kind]] for kind in KINDS}
    eager = middles["eager"]
    lines = [f"== {way['way']}: eager {statistics.mean(eager):.2f} us a call"]
    for kind in KINDS:
        of = middles[kind]
        error = (sum(statistics.variance(values) / len(values) for values in (of, eager)) ** 0.5) if kind != "eager" else 0.0
        calls = statistics.mean(spread([value for block in blocks for value in block]) for blocks in way["kinds"][kind])
        processes = statistics.stdev(of) / statistics.mean(of)
        beyond = f"{statistics.mean(of) - statistics.mean(eager):+8.2f} us a call, standard error {error:.2f}" if kind != "eager" else ""
        late = after_a_pause(way["kinds"][kind], way.get("paused", {}).get(kind, []))
        lines.append(f"  {kind:17} calls vary by {calls:6.2%}, processes by {processes:6.2%} {beyond}{late}")
    return "\n".join(lines)


def after_a_pause(blocks: list[list[list[float]]], paused: list[list[int]]) -> str:
    """Returns how much slower calls just after a pause are than other calls of the same process, if there are any."""
    late = []
    for process, marks in zip(blocks, paused, strict=False):
        calls = list(zip([value for block in process for value in block], marks, strict=True))
        ones, others = [value for value, mark in calls if mark], [value for value, mark in calls if not mark]
        if len(ones) > 2 and len(others) > 2:
            late.append(1e3 * (statistics.median(ones) - statistics.median(others)))
    if len(late) < 2:
        return ""
    return f"; after a pause {statistics.mean(late):+.2f} us, standard error {statistics.stdev(late) / len(late) ** 0.5:.2f}"


def spread(values: list[float]) -> float:
    """Returns the relative spread, computed from the median deviation, which a few slow calls do not affect."""
    at = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - at) for value in values) / at


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--task", default="small", help="small (one kernel), chain (72 layers), or a task's file")
    parser.add_argument("--processes", type=int, default=5, help="of each kind, at least 2")
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="processes at work beside, in a third way")
    parser.add_argument("--ways", help=f"of {', '.join(WAYS)} (default: all; without --beside the first two)")
    parser.add_argument("--profile", action="store_true", help="where the judge's own time goes in each way; its calls are slower for it")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.processes < 2:
        parser.error("--processes: a standard error needs 2 or more")
    arguments.ways = arguments.ways.split(",") if arguments.ways else WAYS if arguments.beside else WAYS[:2]
    if unknown := [way for way in arguments.ways if way not in WAYS]:
        parser.error(f"--ways: there is no {unknown[0]!r}, there are {', '.join(WAYS)}")
    Bench.once(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
