"""Measures a landscape's programs in one process. Each program is checked on one draw of inputs, and then all are timed in turn, block by block.

These programs come from our own compiler and need no sandbox. `bench/landscapes.py --confirm` compares a sample of the results with the real
verifier.
"""

from __future__ import annotations

import ctypes
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from agents.arena.axes import options_at
from agents.arena.landscape import STATUSES, Landscape
from agents.diagnosis import diagnose
from bench.surveying.batches import imported, launcher_names, launchers
from bench.surveying.kernels_seen import Seen, seen
from bench.surveying.preparing import Prepared
from bench.surveying.stopwatch import Stopwatch
from compiler.planning.cost import times
from verifier.correctness.bounds import judge
from verifier.jobs import Profile
from verifier.profiling.diagnosing.cause import Ceilings
from verifier.report import Environment, ObservedKernel, Report, Timing
from verifier.source import sha256

COHORT = 64  # number of programs that are loaded and timed in turn
BLOCKS = 6
BLOCK_CALLS = 4
BLOCK_NS = 4_000_000  # blocks contain fewer calls if the calls are slower
TOLERANCE = 1e-4  # relative to eager's output, in |a-b| / (|b| + rms(b)): a different order of fp32 sums stays far below this
SEED = 20261121


@dataclass
class Result:
    status: str
    us: float | None = None
    spread: float | None = None  # median deviation of the blocks' medians, converted to a standard deviation and divided by the median
    bottleneck: str = ""
    launches: float | None = None
    shares: list[float] | None = None
    note: str = ""


@dataclass
class Loaded:
    number: int
    model: torch.nn.Module
    blocks: list[float]
    calls: int = BLOCK_CALLS


class Bench:
    """One task on one device. `results` grows with each cohort; `eager_us` holds the medians of eager's blocks."""

    def __init__(self, prepared: Prepared, watch: Stopwatch, folder: Path, results: dict[int, Result], eager_us: list[float]):
        self.prepared, self.watch, self.folder = prepared, watch, folder
        self.results, self.eager_us = results, eager_us
        self.environment = watch.judge.environment()
        subject = prepared.subject
        torch.manual_seed(SEED)
        module: dict[str, Any] = {"__name__": "task"}
        exec(compile(subject.source, f"{subject.name}.py", "exec"), module)
        self.init = module["get_init_inputs"]()
        self.reference = module["Model"](*self.init).to(watch.torch_device).train()
        self.state = {name: value.clone() for name, value in self.reference.state_dict().items()}
        self.inputs = pytree.tree_map(lambda v: v.to(watch.torch_device) if isinstance(v, torch.Tensor) else v, module["get_inputs"]())
        with torch.no_grad():
            self.expected = [leaf.clone() for leaf in pytree.tree_leaves(self.reference(*self.inputs)) if isinstance(leaf, torch.Tensor)]
        self.expected_state = {name: value.clone() for name, value in self.reference.state_dict().items()}

    def run(self, flying: Path, until: float, on_cohort: Callable[[], None]) -> bool:
        """Measures everything that has no result yet. Returns false if the time runs out first. `flying` names the program that is being tried for
        the first time. If that program kills this process, the file identifies it to the process that restarts the survey."""
        open_numbers = [n for n in range(len(self.prepared.space.sources)) if n not in self.results]
        random.Random(SEED).shuffle(open_numbers)
        for at in range(0, len(open_numbers), COHORT):
            if time.monotonic() > until:
                return False
            cohort = []
            for number in open_numbers[at : at + COHORT]:
                self.note(flying, number)
                loaded = self.load(number)
                if loaded is not None:
                    cohort.append(loaded)
            self.time(cohort, flying)
            flying.unlink(missing_ok=True)
            found = self.recorded(cohort)
            for loaded, kernels in zip(cohort, found, strict=True):
                self.results[loaded.number] = self.result(loaded, kernels)
            cohort.clear()
            self.watch.empty()
            on_cohort()
        return True

    def note(self, flying: Path, number: int) -> None:
        flying.write_text(json.dumps({"task": self.prepared.subject.name, "number": number}))

    def recorded(self, cohort: list[Loaded]) -> list[Seen | None]:
        """Returns what a profiler records for each program. Returns nothing on a CPU or if the profiler fails, because only the times are
        essential."""
        nothing: list[Seen | None] = [None] * len(cohort)
        if not self.watch.cuda:
            return nothing
        requests = [self.prepared.requests.get(loaded.number) for loaded in cohort]
        names = [launcher_names(request) if request is not None else frozenset() for request in requests]
        try:
            return seen([loaded.model for loaded in cohort], self.inputs, names)
        except Exception as error:  # any error is caught, because a missing class must not end a survey
            print(f"  {self.prepared.subject.name}: no recording of a cohort ({type(error).__name__}: {str(error)[:200]})", flush=True)
            return nothing

    def load(self, number: int) -> Loaded | None:
        """Loads a program if it is correct; otherwise records its verdict in the results and returns None."""
        prepared = self.prepared
        try:
            module = imported(prepared.space.sources[number], self.kernels(number))
        except FileNotFoundError as error:
            self.results[number] = Result("build_failed", note=str(error)[:500])
            return None
        try:
            torch.manual_seed(SEED)
            model = module["ModelNew"](*self.init).to(self.watch.torch_device).train()
            model.load_state_dict(self.state)
            with torch.no_grad():
                output = model(*self.inputs)
            self.watch.sync()
        except Exception as error:  # an exception that a program raises becomes its verdict
            self.watch.check()
            self.results[number] = Result("crashed", note=f"{type(error).__name__}: {error}"[:500])
            return None
        wrong = self.wrong(output, model)
        if wrong:
            self.results[number] = Result("wrong_result", note=wrong[:500])
            return None
        return Loaded(number, model, [])

    def kernels(self, number: int):
        request = self.prepared.requests.get(number)
        if request is None:
            return None
        path = self.folder / self.prepared.library_names[number]
        if not path.exists():
            path = self.folder / self.prepared.alone(number)
            if not path.exists():
                words = path.with_suffix(".txt")
                raise FileNotFoundError(words.read_text() if words.exists() else f"{path.name} was not compiled")
        return launchers(ctypes.CDLL(str(path)), request, number)

    def wrong(self, output: Any, model: torch.nn.Module) -> str:
        got = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
        if len(got) != len(self.expected):
            return f"{len(got)} outputs instead of {len(self.expected)}"
        state = model.state_dict()
        pairs = [(f"output {at}", a, b) for at, (a, b) in enumerate(zip(got, self.expected, strict=True))]
        pairs += [(name, state[name], value) for name, value in self.expected_state.items() if name in state]
        for name, value, expected in pairs:
            if value.shape != expected.shape or value.dtype != expected.dtype:
                return f"{name} is {value.dtype} of {tuple(value.shape)} instead of {expected.dtype} of {tuple(expected.shape)}"
            verdict = judge(value, expected, TOLERANCE)
            if not verdict.ok:
                return f"{name}: {verdict.detail}"
        return ""

    def time(self, cohort: list[Loaded], flying: Path) -> None:
        """Times blocks of every program and of eager in random order, `BLOCKS` times."""
        sides = [Loaded(-1, self.reference, []), *cohort]
        order = random.Random(len(self.results))
        for loaded in sides:
            self.note(flying, loaded.number)
            loaded.calls = self.calls_of(loaded)
        with torch.no_grad():
            for _ in range(BLOCKS):
                order.shuffle(sides)
                for loaded in sides:
                    samples = [self.watch.call(lambda model=loaded.model: model(*self.inputs))[1] for _ in range(loaded.calls)]
                    loaded.blocks.append(statistics.median(samples) / 1e3)
        self.eager_us += next(loaded.blocks for loaded in sides if loaded.number < 0)

    def calls_of(self, loaded: Loaded) -> int:
        with torch.no_grad():
            for _ in range(2):
                nanoseconds = self.watch.call(lambda: loaded.model(*self.inputs))[1]
        return max(1, min(BLOCK_CALLS, BLOCK_NS // max(nanoseconds, 1)))

    def result(self, loaded: Loaded, kernels: Seen | None) -> Result:
        middle = statistics.median(loaded.blocks)
        spread = 1.4826 * statistics.median(abs(block - middle) for block in loaded.blocks) / middle
        result = Result("passed", round(middle, 3), round(spread, 4))
        report = _report(self.prepared, self.environment, middle, kernels)
        profile = kernels.profile if kernels is not None else None
        result.bottleneck = self.bottleneck(report, profile)
        result.launches = profile.launches_per_iteration if profile is not None else None
        result.shares = self.shares(loaded.number, report, profile)
        return result

    def bottleneck(self, report: Report, profile: Profile | None) -> str:
        plan, figures = self.prepared.plan, self.prepared.plan.figures
        ceilings = Ceilings(figures.kind, figures.bandwidth_gbs, figures.fp32_gflops, figures.launch_us, figures.units)
        bytes_min, flops = self.prepared.bytes_min, self.prepared.flops
        return diagnose(report, profile, ceilings, bytes_min=bytes_min, flops=flops, floor_ms=plan.floor_ms or None).bottleneck

    def shares(self, number: int, report: Report, profile: Profile | None) -> list[float] | None:
        """Returns the fraction of the program's time spent in the kernels of each group, or None if it is unknown."""
        if profile is None:
            return None
        plan = self.prepared.plan
        index = self.prepared.space.program.index(number)
        options = options_at(self.prepared.space.axes, _values(self.prepared, index))
        spent = times(plan, options, report, profile)
        return [round(spent.get(group.id, 0.0) / report.timing.program_ms, 3) for group in plan.own]


def _values(prepared: Prepared, index: int) -> tuple[int, ...]:
    values: list[int] = []
    for axis in reversed(prepared.space.axes):
        index, at = divmod(index, len(axis.values))
        values.append(axis.values[at])
    return tuple(reversed(values))


def _report(prepared: Prepared, environment: Environment, us: float, kernels: Seen | None) -> Report:
    """Creates the parts of a report that a diagnosis reads."""
    timing = Timing(program_ms=us / 1e3, bounded=True, clock_agrees=True, round_trip_ms=0.0, comparisons=[])
    rows = (
        [ObservedKernel(name=k.name, calls=k.calls, ms=k.mean_us * k.calls / 1e3, share=k.share, own=k.own) for k in kernels.per_call]
        if kernels
        else []
    )
    return Report.model_construct(
        task="", program="", tier="quick", precision="fp32-strict", mode="train", status="passed", timing=timing, kernels=rows,
        environment=environment, floor_ms=prepared.plan.floor_ms or None,
    )  # fmt: skip


def landscape_of(prepared: Prepared, results: dict[int, Result], eager_us: list[float]) -> Landscape:
    """Returns the table's entry, with the measurements made so far."""
    missing = Result("not_measured")
    rows = [results.get(number, missing) for number in prepared.space.program]
    return Landscape(
        name=prepared.subject.name,
        what=prepared.subject.what,
        axes=prepared.space.axes,
        eager_us=statistics.median(eager_us) if eager_us else 0.0,
        floor_us=prepared.plan.floor_ms * 1e3,
        program=list(prepared.space.program),
        status=[STATUSES.index(row.status) for row in rows],
        us=[row.us for row in rows],
        spread=[row.spread for row in rows],
        bottleneck=[row.bottleneck for row in rows],
        groups=tuple(group.id for group in prepared.plan.own),
        shares=[row.shares for row in rows],
        launches=[row.launches for row in rows],
        sha=sha256(prepared.subject.source),
        programs=prepared.space.sha,
        source=prepared.subject.source,
    )


def results_of(landscape: Landscape, prepared: Prepared) -> dict[int, Result] | None:
    """Returns the results of an earlier part, or None if it has other programs."""
    if (landscape.axes, landscape.programs, landscape.source) != (prepared.space.axes, prepared.space.sha, prepared.subject.source):
        return None
    found: dict[int, Result] = {}
    for index, number in enumerate(landscape.program):
        status = STATUSES[landscape.status[index]]
        if status != "not_measured":
            found[number] = Result(
                status, landscape.us[index], landscape.spread[index], landscape.bottleneck[index], landscape.launches[index], landscape.shares[index]
            )
    return found


def points_of(prepared: Prepared) -> Iterator[tuple[int, int]]:
    """Yields (index of its first point, program) for every distinct program."""
    known: set[int] = set()
    for index, number in enumerate(prepared.space.program):
        if number not in known:
            known.add(number)
            yield index, number
