"""Finds where a judge spends its time on calls with gigabytes of data: drawing, each side's call, comparing, and the functions behind them.

    python bench/large_calls.py --device cuda:0 --gib 6 --out FILE.json [--draws 8] [--sides 3]

The task is a sigmoid over the given number of GiB; a program with the same model, and eager processes, are called in turn as in the full tier. The
judge runs in this process under cProfile and waits for each of its own launches, so that costs are attributed to the right function; as a result, all
calls are slower. `asked` is the time during which the judge waited for parties, by request. Times in FILE are in seconds.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import random
import secrets
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.sides import Bench, own_candidate  # noqa: E402
from verifier.correctness.trials import Trials  # noqa: E402
from verifier.jobs import VerifyJob  # noqa: E402
from verifier.judge.asking import Party  # noqa: E402
from verifier.judge.session import ReferenceSession  # noqa: E402
from verifier.timing.blocks import Side, measure  # noqa: E402
from verifier.timing.host_repeatability import repeatability  # noqa: E402
from verifier.timing.pairs import Pair  # noqa: E402
from verifier.timing.timed_outputs import TimedOutputs  # noqa: E402
from verifier.timing.tournament import Tournament  # noqa: E402

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


def get_inputs():
    return [torch.rand({rows}, 65536)]


def get_init_inputs():
    return []
"""
WARM_UP, SHOWN = 3, 25


class Spent:
    """Time and number of calls of functions, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def of(self, name: str | Callable[..., str], call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            begin = time.monotonic()
            try:
                return call(*given, **named)
            finally:
                key = name if isinstance(name, str) else name(*given)
                self.seconds[key] += time.monotonic() - begin
                self.calls[key] += 1

        return timed

    def table(self) -> dict[str, list[float]]:
        return {name: [round(seconds, 4), self.calls[name]] for name, seconds in sorted(self.seconds.items(), key=lambda entry: -entry[1])}


class Calls(Bench):
    def run(self) -> None:
        given = self.arguments
        source = TASK.format(rows=max(int(given.gib * 2**30 / 4 / 65536), 1))
        trials = Trials(ReferenceSession(self.pool, source, "fp32-strict", "train"), secrets.randbits(48), full=False, on_progress=lambda text: None)
        trials.prepare()
        job = VerifyJob(task_source=source, program_source=own_candidate(source), tier="full")
        enlist = partial(self._enlist, job.program_source)
        tournament = Tournament(self.pool, trials, job, secrets.randbits(48), enlist, repeatability(self.data_dir, self.device), others=[])
        runner = self.pool.take("runner", "fp32-strict", "train")
        subject = enlist(runner)
        verdict = trials.run(subject)  # determines the tolerated error for timed outputs
        if verdict.wrong:
            raise SystemExit(f"large_calls: {verdict.wrong}")
        trials.make_room()
        parties = [self.pool.take("baseline", "fp32-strict", "train") for _ in range(given.sides - 1)]
        assert subject.caller is not None
        sides = [Side(None, subject.caller), *(tournament._baseline("eager", party) for party in parties)]
        try:
            found = self._timed(trials, tournament, sides)
        finally:
            for party in (runner, *parties):
                self.pool.give_back(party)
        given.out.write_text(json.dumps({"device": self.device.environment().model_dump(), "gib": given.gib, "sides": given.sides, **found}) + "\n")

    def _timed(self, trials: Trials, tournament: Tournament, sides: list[Side]) -> dict[str, Any]:
        parts, asked = Spent(), Spent()
        outputs = TimedOutputs(trials, has_rival=False)
        check = outputs.of([Pair(sides[0], sides[1:], None)])  # type: ignore[arg-type]
        for number in range(WARM_UP):
            values, seed = tournament._draw(number)
            for side in sides:
                check(number, side, side.caller.call(values, seed))
            del values
        for side in sides:
            side.caller.call = parts.of("call of the program" if side.name is None else "call of eager", side.caller.call)  # type: ignore[method-assign]
        plain = Party.ask
        Party.ask = asked.of(lambda party, kind, *rest: f"{party.role}: {kind}", plain)  # type: ignore[method-assign]
        try:
            with cProfile.Profile() as profiled:
                begin = time.monotonic()
                blocks = self.arguments.draws // 2
                draw = parts.of("drawing", tournament._draw)
                measure(sides, draw, parts.of("comparing", check), random.Random(secrets.randbits(48)), WARM_UP, blocks)
                spent = time.monotonic() - begin
        finally:
            Party.ask = plain  # type: ignore[method-assign]
        if outputs.failed:
            raise SystemExit(f"large_calls: {outputs.failed[0].detail}")
        functions = pstats.Stats(profiled).get_stats_profile().func_profiles
        dearest = sorted(functions.items(), key=lambda entry: -entry[1].tottime)[:SHOWN]
        print(f"{spent / (2 * blocks):.3f} s a draw with {len(sides)} sides; {median(sides[0]):.3f} ms a call of the program")
        for name, (seconds, calls) in [*parts.table().items(), *asked.table().items()]:
            print(f"  {seconds / (2 * blocks) * 1e3:9.2f} ms a draw  {int(calls):5} times  {name}")
        for name, row in dearest:
            print(f"  {row.tottime / (2 * blocks) * 1e3:9.2f} ms a draw  {row.ncalls:>9} times  {Path(row.file_name).name}:{row.line_number} {name}")
        return {
            "draws": 2 * blocks,
            "seconds": round(spent, 3),
            "parts": parts.table(),
            "asked": asked.table(),
            "functions": [[f"{Path(row.file_name).name}:{row.line_number} {name}", row.ncalls, round(row.tottime, 4)] for name, row in dearest],
        }


def median(side: Side) -> float:
    times = sorted(value for block in side.blocks for value in block)
    return times[len(times) // 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--gib", type=float, default=6.0, help="of inputs, and as much of outputs (default: 6)")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--sides", type=int, default=3, help="processes: the program's and eager ones (default: 3)")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.draws < 2 or arguments.sides < 2:
        parser.error("--draws and --sides are 2 or more")
    Calls.once(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
