"""The stage `timing`: brings up the baselines, warms everything up, runs blocks until the interval is narrow enough, checks every call."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from verifier.correctness import NORM, ULPS, K, epsilon
from verifier.idleness import Watch
from verifier.jobs import VerifyJob
from verifier.pool import Party, PartyFailure, Pool
from verifier.report import Baseline, Timing, Trial
from verifier.session import Values, give
from verifier.timing import Call, Caller, Side, clock_finding, compare, measure, median_ms
from verifier.trials import Subject, Trials, compare_outputs

MIN_BLOCKS = {"quick": 12, "full": 20}
MAX_BLOCKS = {"quick": 40, "full": 60}
FEW_BLOCKS = 6  # for calls so slow that more would take minutes
WIDE = 0.3  # (high - low) / ratio beyond which more blocks are run
EXTRA = 1.5  # budgets that may go into them
USELESS = 8.0  # high / low beyond which an interval around 1 is no verdict: the machine is too busy to measure on
WARM_UP = 3
WARM_UP_SECONDS = 0.3
PATIENCE = 60.0  # seconds
SUSPICIOUS = 10.0  # times eager
KEPT_TRIALS = 8  # of the timed calls, in the report


@contextlib.contextmanager
def alone(device: str) -> Iterator[None]:
    """One measurement at a time on a device, over all judges of this user; after a minute of waiting it goes ahead."""
    path = os.path.join(tempfile.gettempdir(), f"stitchwork-{os.getuid()}-{device.replace(':', '-')}.lock")
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        os.close(fd)


@dataclass
class Tournament:
    pool: Pool
    trials: Trials
    job: VerifyJob
    seed: int
    parties: list[Party] = field(default_factory=list)
    failed: list[Trial] = field(default_factory=list)
    checked: list[Trial] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    wide: str = ""
    burning: str = ""  # how the program kept the machine busy while others were timed

    def run(self, subject: Subject) -> tuple[Timing, str]:
        """The timing, and how the clocks disagree, if they do. Wrong outputs are in `failed`. Raises `PartyFailure` for the program."""
        with alone(self.pool.device.name):
            return self._run(subject)

    def _run(self, subject: Subject) -> tuple[Timing, str]:
        self.close()
        self.failed, self.checked, self.wide = [], [], ""
        rng = random.Random(self.trials.draws.getrandbits(64))
        self._inputs: dict[int, tuple[Values, int]] = {}
        self._pending: dict[int, dict[int, Call]] = {}
        baselines = self._baselines()
        program = Side(None, Caller(subject.runner, self.trials.expected_specs, self.trials.limits.call))
        sides = [program, *baselines]
        first = self._warm_up(sides)
        for side in sides:
            side.calibrate()
        watch = Watch(subject.runner)
        for baseline in baselines:
            baseline.caller.watch = watch
        tier = self.job.tier
        budget = self.trials.limits.quick_timing if tier == "quick" else self.trials.limits.full_timing
        begin = time.monotonic()
        first = measure(sides, self._draw, self._check(program, baselines), rng, first, 2)
        a_block = (time.monotonic() - begin) / 2
        wanted = int(min(max(budget / a_block, MIN_BLOCKS[tier]), MAX_BLOCKS[tier]))
        if wanted * a_block > 6 * budget:
            wanted = max(FEW_BLOCKS, int(6 * budget / a_block))
        first = measure(sides, self._draw, self._check(program, baselines), rng, first, wanted - 2)
        comparison = compare(program, baselines[0], self.seed)
        more = time.monotonic() + EXTRA * budget
        while not self.failed and (comparison.speedup.high - comparison.speedup.low) / comparison.speedup.ratio > WIDE and time.monotonic() < more:
            first = measure(sides, self._draw, self._check(program, baselines), rng, first, FEW_BLOCKS)
            comparison = compare(program, baselines[0], self.seed)
        comparisons = [compare(program, baseline, self.seed) for baseline in baselines]
        speedup = comparisons[0].speedup
        if speedup.high / max(speedup.low, 1e-9) > USELESS and speedup.low < 1 < speedup.high:
            self.wide = f"the interval of the speedup, {speedup.low:.2f} to {speedup.high:.2f}, is too wide to say anything: the machine is too busy"
        program_ms = median_ms(program)
        problem, self.burning = clock_finding(program, baselines[0]), watch.finding()
        timing = Timing(
            program_ms=program_ms,
            bounded=program_ms < 1,
            clock_agrees=not problem,
            round_trip_ms=program.round_trip / 1e6,
            comparisons=comparisons,
            throttled=self.pool.device.throttled(),
        )
        return timing, problem

    def suspicious(self, timing: Timing) -> bool:
        return timing.comparisons[0].speedup.ratio > SUSPICIOUS

    def close(self) -> None:
        for party in self.parties:
            self.pool.give_back(party)
        self.parties = []

    # Baselines

    def _baselines(self) -> list[Side]:
        names: list[Baseline] = ["eager"] if self.job.tier == "quick" else ["eager", "compile"]
        if self.job.tier == "full" and self.pool.device.kind == "cuda":
            names.append("cuda-graph")
        sides = []
        for name in names:
            try:
                sides.append(self._baseline(name))
            except PartyFailure as failure:
                if name == "eager":
                    failure.request, failure.message = "start", f"the eager baseline failed: {failure.message}"
                    raise
                self.reasons[name] = f"{name}: {failure.message.splitlines()[0] if failure.message else failure.kind}"
        return sides

    def _baseline(self, name: Baseline) -> Side:
        trials, reference = self.trials, self.trials.reference
        party = self.pool.take("baseline", self.job.precision, self.job.mode)
        self.parties.append(party)
        party.ask("load", {"source": reference.source, "seed": trials.weight_seed}, trials.limits.load)
        self._set_state(party)
        side = Side(name, Caller(party, trials.expected_specs, trials.limits.call))
        if name != "eager":
            values = trials.first_inputs
            example = {"tree": values.tree, **give(party, "in", values.tensors, values.specs)}
            party.ask("compile", {"baseline": name, **example}, trials.limits.compile_baseline)
            side.caller.limit = trials.limits.compile_baseline
            side.caller.call(values, 1, flush=False)  # compiles; the state that it changes is set back
            side.caller.limit = trials.limits.call
            self._set_state(party)
        return side

    def _set_state(self, party: Party) -> None:
        state = self.trials.reference.state
        if state:
            message = {"names": [entry.name for entry in state], **give(party, "state", self.trials.original, [entry.spec for entry in state])}
            party.ask("take_state", message, self.trials.limits.load)

    def _warm_up(self, sides: list[Side]) -> int:
        """The same calls on every side, in the same sequence, also checked, until a sensible time has passed."""
        program, baselines = sides[0], sides[1:]
        check = self._check(program, baselines)
        self.trials.reconstruct(self.trials.subject)  # type: ignore[arg-type]
        assert self.trials.subject is not None and self.trials.subject.caller is not None
        program.caller = self.trials.subject.caller
        begin = time.monotonic()
        number = 0
        while number < WARM_UP or (number < 10 and time.monotonic() - begin < WARM_UP_SECONDS):
            values, seed = self._draw(number)
            for side in sides:
                check(number, side, side.caller.call(values, seed))
            number += 1
        return number

    # Inputs and checks

    def _draw(self, number: int) -> tuple[Values, int]:
        seed = self.trials.draws.getrandbits(32)
        values = self.trials.reference.inputs(seed)
        return values, seed

    def _check(self, program: Side, baselines: list[Side]) -> Callable[[int, Side, Call], None]:
        """Every output of the program against eager's for the same input, whichever comes first."""
        eager = baselines[0]

        def check(number: int, side: Side, call: Call) -> None:
            if side is not program and side is not eager:
                return
            calls = self._pending.setdefault(number, {})
            calls[id(side)] = call
            if len(calls) < 2:
                return
            del self._pending[number]
            expected, got = calls[id(eager)], calls[id(program)]
            trial = self._trial(number, got, expected)
            if not trial.ok:
                self.failed = [trial]
            elif len(self.checked) < KEPT_TRIALS:
                self.checked.append(trial)

        return check

    def _trial(self, number: int, got: Call, expected: Call) -> Trial:
        form = Values(expected.tree, expected.specs)
        # Eager is itself off by its own error, which the bound has to allow for.
        bounds = [
            max((K + 1) * error, 2 * ULPS * epsilon(spec.torch_dtype)) if spec.floating else 0.0
            for spec, error in zip(expected.specs, self.trials.errors or [0.0] * len(expected.specs), strict=False)
        ]
        trial = compare_outputs(f"timed call {number + 1}", 0, got, form, expected.outputs, expected.outputs, bounds)
        changed = [i for i, (ours, theirs) in enumerate(zip(got.inputs_intact, expected.inputs_intact, strict=True)) if theirs and not ours]
        if trial.ok and changed:
            trial = trial.model_copy(update={"ok": False, "detail": f"the program changes its input {changed[0]}"})
        return trial.model_copy(update={"norm": NORM + ", against eager"})
