"""Measures how reliable the verifier's own intervals are on one device:

    python bench/calibration.py CHECKOUT --device cuda:0 --shard 0/4 --out FILE.json [--resume] [--host FOLDER] [--limit-seconds 560]
                                [--parts same,slower,repeat] [--tasks REGEX]

- `same`: each of ten tasks as its own candidate, 40 times: how many intervals contain 1.0 (at least 372 of 400), and how wide they are (median at
  most 2 %).
- `slower`: the task's own model plus a waiting kernel that takes 3 % of its time, 100 times over tasks whose calls take at least 1 ms: how many
  intervals are entirely below 1 (at least 95).
- `repeat`: three models as their own candidates, ten times each: the coefficient of variation of the speedup.

The `timing` stage of the `full` tier runs exactly as in the judge: every repetition uses three (or six) fresh processes per side, every output is
checked, every block gets new inputs, and this host's calibration is used. Baselines other than eager are omitted. Several processes may share a GPU:
one measures while the others are paused. `--host` is a folder that they share; it holds the host's calibration, which the first of them creates.
`--known FILE` names rows of earlier sessions, which are not measured again. `--summary FILE...` prints the table of all rows in these files; with
`--join`, it writes them to one file. `--estimate-again OUT` recomputes, writes and prints the intervals that the current `timing/intervals.py`
derives from the samples, with the default repeatability of a GPU, for rows whose intervals come from an earlier version.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import re
import secrets
import statistics
import sys
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from verifier.build.artefacts import NONE  # noqa: E402
from verifier.correctness.calling import Subject  # noqa: E402
from verifier.correctness.trials import Trials  # noqa: E402
from verifier.devices.opening import open_device  # noqa: E402
from verifier.jobs import CalibrateJob, VerifyJob  # noqa: E402
from verifier.judge.asking import Party  # noqa: E402
from verifier.judge.pool import Pool  # noqa: E402
from verifier.judge.session import ReferenceSession  # noqa: E402
from verifier.limits import Limits  # noqa: E402
from verifier.timing.calibrate import calibrate  # noqa: E402
from verifier.timing.host_repeatability import repeatability  # noqa: E402
from verifier.timing.intervals import DEFAULTS, estimate  # noqa: E402
from verifier.timing.tournament import MORE_PAIRS, PAIRS, Tournament  # noqa: E402

# The tasks were drawn with random.Random(2026) from KernelBench tasks that take 1 to 20 ms per call on an H200 and have at most 1 GiB of inputs,
# outputs and weights (a 6 GB task takes three times as long to measure). Three are from level 1, three from level 2, two from level 3 that a CUDA
# graph makes at least 1.5x faster (so that host-bound calls are represented too), and two more from level 3.
TASKS = [
    "level1/15_Matmul_for_lower_triangular_matrices.py",
    "level1/50_conv_standard_2D__square_input__square_kernel.py",
    "level1/72_conv_transposed_3D_asymmetric_input_asymmetric_kernel___strided_padded_grouped_.py",
    "level2/99_Matmul_GELU_Softmax.py",
    "level2/33_Gemm_Scale_BatchNorm.py",
    "level2/50_ConvTranspose3d_Scaling_AvgPool_BiasAdd_Scaling.py",
    "level3/45_UNetSoftmax.py",
    "level3/28_VisionTransformer.py",
    "level3/32_ConvolutionalVisionTransformer.py",
    "level3/34_VanillaRNNHidden.py",
]
SLOWER = TASKS  # all take 1 ms or more
REPEATED = [
    "level2/33_Gemm_Scale_BatchNorm.py",
    "level3/32_ConvolutionalVisionTransformer.py",
    "examples/softmax.py",
]  # long calls, host-bound calls, and calls below 100 us
SAME_TIMES, SLOWER_TIMES, REPEAT_TIMES = 40, 100, 10
SPARES = 18
STAGES = ("inputs", "trials", "timing", "ending")  # parts of a row's seconds after `refilling`; time frozen for other benches (`frozen`) is included
SETTLE_SECONDS = 8.0  # longest wait until started processes have imported torch
SLOWDOWN = 0.03

_SLOWER = """

class ModelNew(_Own):
    def forward(self, *inputs):
        outputs = super().forward(*inputs)
        torch.cuda._sleep({cycles})
        return outputs
"""


def own_candidate(source: str) -> str:
    return re.sub(r"super\(Model, self\)", "super(ModelNew, self)", re.sub(r"\bclass Model\(", "class ModelNew(", source))


def slowed(source: str, cycles: int) -> str:
    """Returns the task's model followed by a kernel that waits for `cycles` GPU clock cycles."""
    renamed = re.sub(r"super\(Model, self\)", "super(_Own, self)", re.sub(r"\bclass Model\(", "class _Own(", source))
    return f"import torch\n{renamed}{_SLOWER.format(cycles=cycles)}"


class Bench:
    def __init__(self, arguments: argparse.Namespace, data_dir: Path):
        self.arguments = arguments
        self.device = open_device(arguments.device, data_dir, later=True)
        self.device.take_processors()  # before torch starts its threads, as in the judge
        self.device.open()
        self.limits = Limits(memory=64 << 30, full_timing=arguments.timing_seconds, correctness=0.5)
        self.pool = Pool(self.device, self.limits, spares=SPARES)
        if self.device.kind == "cuda":  # as in the judge: this bench's processes are frozen while another bench measures
            self.pool.gate.begin(self.pool.freezable, self.device.rests)
        self.data_dir = data_dir
        self.out = Path(arguments.out)
        self.result: dict[str, Any] = {"device": self.device.environment().model_dump(), "shard": arguments.shard, "rows": []}
        if arguments.resume and self.out.exists():
            self.result = json.loads(self.out.read_text())
        self.known = json.loads(arguments.known.read_text())["rows"] if arguments.known and arguments.known.exists() else []
        self.deadline = time.monotonic() + arguments.limit_seconds
        self.longest = 0.0  # seconds taken by the longest row of this session; another row starts only if at least that much time is left
        self._slow_cycles: dict[str, int] = {}

    def run(self) -> None:
        with self.pool.gate.working():
            self._run()

    def close(self) -> None:
        self.pool.gate.end()
        self.pool.close()

    def _run(self) -> None:
        self._calibrate()
        index, count = (int(part) for part in self.arguments.shard.split("/"))
        wanted = re.compile(self.arguments.tasks)
        for part, task, missing in self._plan(index, count, {(row["part"], row["task"], row["repeat"]) for row in self._rows()}):
            if missing and wanted.search(task) and not self._late():
                try:
                    self._task(part, task, missing)
                except Exception as error:  # an error in one task must not affect the others
                    print(f"{part} {task}: {type(error).__name__}: {getattr(error, 'message', error)}"[:600], flush=True)
                    self.result.setdefault("errors", []).append({"part": part, "task": task, "error": f"{type(error).__name__}: {error}"[:600]})
                self._save()

    def _calibrate(self) -> None:
        """Measures this host's repeatability once for all processes that share the folder: the first measures while the others wait."""
        kept = self.data_dir / "calibration.json"
        with open(self.data_dir / "calibration.lock", "w") as lock:
            with self.pool.gate.idle():
                fcntl.flock(lock, fcntl.LOCK_EX)
            model = self.device.environment().device_model
            if not kept.exists() or json.loads(kept.read_text())["device_model"] != model:
                found = calibrate(CalibrateJob(seconds=4), self.pool, self.data_dir, lambda event: print(event.detail, flush=True))
                kept.write_text(found.model_dump_json())
        self.result["calibration"] = json.loads(kept.read_text())
        print(self.result["calibration"]["repeatability"], flush=True)

    def _rows(self) -> list[dict[str, Any]]:
        return [*self.known, *self.result["rows"]]

    def _plan(self, index: int, count: int, done: set[tuple[str, str, int]]) -> list[tuple[str, str, list[int]]]:
        """Plans every task on every shard, so that differences between GPUs show in the result. The repetitions are distributed among shards, not the
        tasks."""
        parts = self.arguments.parts.split(",")
        plan = []
        for part, names, times in (("same", TASKS, 0), ("slower", SLOWER, SLOWER_TIMES), ("repeat", REPEATED, REPEAT_TIMES * len(REPEATED))):
            if part in parts:
                each = SAME_TIMES if part == "same" else times // len(names)
                extra = 0 if part == "same" else times % len(names)
                for place, name in enumerate(names):
                    left = [repeat for repeat in range(each + (place < extra)) if (part, name, repeat) not in done]
                    plan.append((part, name, left[index::count]))
        return plan

    def _task(self, part: str, name: str, repeats: list[int]) -> None:
        source = (ROOT / name if name.startswith("examples/") else Path(self.arguments.checkout) / "KernelBench" / name).read_text()
        session = ReferenceSession(self.pool, source, "fp32-strict", "train")
        try:
            program = own_candidate(source) if part != "slower" else slowed(source, self._cycles(name, source, session))
            for repeat in repeats:
                if self._late():
                    return
                begin, frozen = time.monotonic(), self.pool.gate.frozen_seconds()
                self._refill()
                refilled = time.monotonic()
                row = self._measure(session, source, program)
                row |= {"part": part, "task": name, "repeat": repeat, "seconds": round(time.monotonic() - begin, 2)}
                row |= {"timing_seconds": self.limits.full_timing}
                row |= {"refilling": round(refilled - begin, 2), "frozen": round(self.pool.gate.frozen_seconds() - frozen, 2)}
                self.longest = max(self.longest, row["seconds"])
                self.result["rows"].append(row)
                print(f"{part:7} {name[:44]:44} {repeat:3} {row['ratio']:.4f} [{row['low']:.4f}, {row['high']:.4f}] {row['seconds']} s", flush=True)
                self._save()
        finally:
            session.close()

    def _late(self) -> bool:
        return time.monotonic() + self.longest > self.deadline

    def _measure(self, session: ReferenceSession, source: str, program: str) -> dict[str, Any]:
        marks = [time.monotonic()]
        trials = Trials(session, secrets.randbits(48), full=False, on_progress=lambda text: None)
        trials.prepare()
        marks.append(time.monotonic())
        job = VerifyJob(task_source=source, program_source=program, tier="full")
        enlist = partial(self._enlist, program)
        tournament = Tournament(self.pool, trials, job, secrets.randbits(48), enlist, repeatability(self.data_dir, self.device), others=[])
        runner = self.pool.take("runner")
        try:
            subject = enlist(runner)
            trials.reconstruct(subject)
            trials.run(subject)
            marks.append(time.monotonic())
            timing, problem = tournament.run(subject)
            marks.append(time.monotonic())
        finally:
            tournament.close()
            self.pool.give_back(runner)
        marks.append(time.monotonic())
        comparison = timing.comparisons[0]
        return {
            **comparison.speedup.model_dump(),
            "by_judge": timing.by_judge.model_dump() if timing.by_judge else None,
            "program_ms": comparison.program_ms,
            "eager_ms": comparison.baseline_ms,
            "blocks": comparison.blocks,
            "pairs": timing.pairs,
            "waiting": timing.waiting,
            "measuring": timing.measuring,
            "stages": {name: round(end - begin, 2) for name, begin, end in zip(STAGES, marks, marks[1:], strict=False)},
            "repeatability": timing.repeatability,
            "problem": problem or (tournament.outputs.failed[0].detail if tournament.outputs.failed else "") or tournament.burning,
            "throttled": timing.throttled,
            "program_samples_ms": _rounded(comparison.program_samples_ms),
            "eager_samples_ms": _rounded(comparison.baseline_samples_ms),
            "processes": comparison.processes,
            "rounds": comparison.rounds,
        }

    def _enlist(self, program: str, runner: Party) -> Subject:
        runner.import_program(program, NONE, self.limits.load)
        return Subject(runner)

    def _cycles(self, name: str, source: str, session: ReferenceSession) -> int:
        """Returns the number of clock cycles that take 3 % of a call's time, using eager's time from the rows of this task or from a first
        measurement that is discarded."""
        if name not in self._slow_cycles:
            known = [row["eager_ms"] for row in self._rows() if row["task"] == name]
            if not known:
                self._refill()
                known = [self._measure(session, source, own_candidate(source))["eager_ms"]]
            self._slow_cycles[name] = int(SLOWDOWN * statistics.median(known) / self._ms_a_cycle())
            print(f"        {name}: {self._slow_cycles[name]} cycles", flush=True)
        return self._slow_cycles[name]

    @cache  # noqa: B019 - one bench a process
    def _ms_a_cycle(self) -> float:
        """Measures the difference between a long and a short wait, so that the launch overhead cancels."""
        import torch

        torch.cuda.set_device(self.device.torch_device)
        took = []
        with self.pool.gate.alone():
            for cycles in (2_000_000, 22_000_000):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                times = []
                for _ in range(5):
                    begin.record()
                    torch.cuda._sleep(cycles)
                    end.record()
                    end.synchronize()
                    times.append(begin.elapsed_time(end))
                took.append(statistics.median(times))
        return (took[1] - took[0]) / 20_000_000

    def _refill(self) -> None:
        """Waits for enough idle processes that have imported torch before anything is timed."""
        if len(self.pool.waiting) >= 2 * (PAIRS["full"] + MORE_PAIRS["full"]) + 2:
            return
        self.pool.refill()
        gate, deadline = self.pool.gate, time.monotonic() + SETTLE_SECONDS
        with gate.idle():
            at_work, frozen = True, gate.frozen_seconds()
            while at_work and time.monotonic() - (gate.frozen_seconds() - frozen) < deadline:
                used, stood = self._spares_ns(), gate.frozen_seconds()
                time.sleep(0.25)
                stood_still = gate.frozen_seconds() > stood and not self.pool.host_goes_on  # frozen processes only appear idle
                at_work = self._spares_ns() - used > 10_000_000 or stood_still

    def _spares_ns(self) -> int:
        return sum(party.spawned.cpu_ns() or 0 for party in self.pool.waiting)

    def _save(self) -> None:
        scratch = self.out.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(self.result))
        os.replace(scratch, self.out)


def _rounded(samples: list[list[float]]) -> list[list[float]]:
    return [[round(value, 5) for value in block] for block in samples]


def join(files: list[str], out: Path) -> None:
    """Merges the shards' rows into one file, one row per line."""
    parts = [json.loads(Path(file).read_text()) for file in files]
    order = {"same": 0, "slower": 1, "repeat": 2}
    rows = sorted((row for part in parts for row in part["rows"]), key=lambda row: (order[row["part"]], row["task"], row["repeat"]))
    head = {"device": parts[0]["device"], "calibrations": [], "errors": [error for part in parts for error in part.get("errors", [])]}
    for found in (found for part in parts for found in part.get("calibrations", [part.get("calibration")])):
        if found is not None and found not in head["calibrations"]:
            head["calibrations"].append(found)
    lines = ",\n".join(json.dumps(row) for row in rows)
    out.write_text(json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{lines}\n]\n}}\n')


def estimate_again(files: list[str], out: Path) -> int:
    """Recomputes the rows' intervals from their samples, and drops the samples."""
    rows = []
    for row in (row for file in files for row in json.loads(Path(file).read_text())["rows"]):
        sides = [_by_process(row[name], row["processes"]) for name in ("program_samples_ms", "eager_samples_ms")]
        found = estimate(*sides, DEFAULTS["cuda"], seed=row["repeat"], rounds=row.get("rounds"))
        kept = {
            name: value for name, value in row.items() if name in ("part", "task", "repeat", "eager_ms", "program_ms", "blocks", "pairs", "problem")
        }
        before = {name: row[name] for name in ("ratio", "low", "high")}
        rows.append({**kept, **found.interval.model_dump(), "within": found.within, "between": found.between, "as_measured": before})
    out.write_text('{"rows": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n")
    return summary([str(out)])


def _by_process(samples: list[list[float]], processes: list[int]) -> list[np.ndarray]:
    """Returns (blocks, calls per block) for each process."""
    blocks, of = np.array(samples), np.array(processes)
    return [blocks[of == number] for number in sorted(set(processes))]


def summary(files: list[str]) -> int:
    rows = [row for file in files for row in json.loads(Path(file).read_text())["rows"]]
    for part in ("same", "slower", "repeat"):
        chosen = [row for row in rows if row["part"] == part]
        if not chosen:
            continue
        print(f"== {part}: {len(chosen)} measurements")
        for name in dict.fromkeys(row["task"] for row in chosen):
            of = [row for row in chosen if row["task"] == name]
            widths = [(row["high"] - row["low"]) / row["ratio"] for row in of]
            ratios = [row["ratio"] for row in of]
            good = sum(row["low"] <= 1 <= row["high"] for row in of) if part != "slower" else sum(row["high"] < 1 for row in of)
            spread = statistics.stdev(ratios) / statistics.mean(ratios) if len(ratios) > 1 else 0.0
            text = f"{good:3} of {len(of):3}  width {statistics.median(widths):.4f}  ratio {statistics.median(ratios):.4f}  variation {spread:.4f}"
            print(f"  {name[:60]:60} {statistics.median(row['eager_ms'] for row in of):9.4f} ms  {text}")
        good = sum(row["low"] <= 1 <= row["high"] for row in chosen) if part != "slower" else sum(row["high"] < 1 for row in chosen)
        width = statistics.median((row["high"] - row["low"]) / row["ratio"] for row in chosen)
        print(f"  all: {good} of {len(chosen)}, median width {width:.4f}, problems {sum(bool(row['problem']) for row in chosen)}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", help="folder of a KernelBench checkout")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--out", default="calibration.json")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--known", type=Path, metavar="FILE", help="rows of earlier sittings, which are not measured again")
    parser.add_argument("--limit-seconds", type=float, default=3600)
    parser.add_argument("--parts", default="same,slower,repeat")
    parser.add_argument("--tasks", default="", metavar="REGEX", help="only tasks whose names match")
    parser.add_argument("--timing-seconds", type=float, default=Limits().full_timing)
    parser.add_argument("--host", type=Path, metavar="FOLDER", help="what processes on one host share: its calibration")
    parser.add_argument("--summary", nargs="*", metavar="FILE")
    parser.add_argument("--join", type=Path, metavar="FILE", help="with --summary: all rows as one file")
    parser.add_argument("--estimate-again", type=Path, metavar="OUT", help="with --summary: what today's intervals say of the samples")
    arguments = parser.parse_args()
    if arguments.summary:
        if arguments.join:
            join(arguments.summary, arguments.join)
            arguments.summary = [str(arguments.join)]  # it may itself be one of the joined files, and its rows would then count twice
        if arguments.estimate_again:
            return estimate_again(arguments.summary, arguments.estimate_again)
        return summary(arguments.summary)
    random.seed(secrets.randbits(64))
    with tempfile.TemporaryDirectory(prefix="calibration-") as data:
        if arguments.host:
            arguments.host.mkdir(parents=True, exist_ok=True)
        bench = Bench(arguments, arguments.host or Path(data))
        try:
            bench.run()
        finally:
            bench.close()
    return summary([arguments.out])


if __name__ == "__main__":
    sys.exit(main())
