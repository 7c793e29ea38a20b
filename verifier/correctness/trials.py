"""Correctness: several calls of the program in its runner, each judged against the reference's fp64 result for the same secret inputs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.correctness.bounds import DISTRIBUTIONS
from verifier.correctness.chance import stochastic
from verifier.correctness.comparison import compare_outputs
from verifier.correctness.examining import Examiner, compared
from verifier.correctness.expectation import SHORT, Expectations, Skipped, first_lines
from verifier.correctness.trial_plan import Plan, Step, constant
from verifier.correctness.triviality import trivial_guess
from verifier.judge.asking import Party
from verifier.judge.memory import EASE, Ledger, large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import ReferenceSession, Values, give, release
from verifier.layout import place
from verifier.report import Finding, Trial, WeightsFrom
from verifier.task import Flag
from verifier.timing.blocks import Call, Caller, kept

LEAST_TRIALS = 8  # however slow they are


@dataclass
class Subject:
    """A runner that has imported the program."""

    runner: Party
    caller: Caller | None = None


@dataclass
class Verdict:
    wrong: str = ""
    weights: WeightsFrom = "loaded"
    flags: list[Flag] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class Trials:
    def __init__(self, reference: ReferenceSession, seed: int, full: bool, on_progress: Callable[[str], None], backward: bool = False):
        self.reference = reference
        self.limits = reference.limits
        self.seed = seed
        self.full = full
        self.backward = backward
        self.lock = threading.Lock()  # baselines come up side by side, the reference is one
        self.on_progress = on_progress
        self.draws = random.Random(seed)  # a seed's every use is a number of its own, in a fixed order
        self.weight_seed = self.draws.getrandbits(32)
        self.done: list[Trial] = []
        self.subject: Subject | None = None
        self.stochastic = False
        self.flags: list[Flag] = []
        self.expectations = Expectations(reference, self.draws, lambda: self.first_inputs)
        self.examiner = Examiner(reference)
        self.original: list[torch.Tensor] = []
        self.seeded = False
        self._first: Values | None = None

    def prepare(self) -> None:
        """Loads the task under the evaluation's seed and learns whether it is stochastic. Raises `PartyFailure` for the task's faults."""
        self.reference.load(self.weight_seed)
        self.original = self.reference.state_tensors
        self._first_seed = self.draws.getrandbits(32)
        first = self.reference.inputs(self._first_seed, count=True)
        if self.backward:
            first = self.reference.want_gradients(first, self.draws.getrandbits(32))
        one = self.reference.eager(first, 1)
        self.reference.rollback()
        outputs = [kept(tensor) for tensor in one.outputs.tensors]
        two = self.reference.eager(first, 2)
        self.reference.rollback()
        self.stochastic = stochastic(outputs, [kept(tensor) for tensor in two.outputs.tensors], one.drew or two.drew)
        del two, outputs
        other = self.reference.inputs(self.draws.getrandbits(32))
        three = self.reference.eager(other, 1)
        self.reference.rollback()
        self.input_specs, self.expected_specs, self.tree = first.specs, one.outputs.specs, one.outputs.tree
        if self.stochastic:
            self.flags.append("stochastic")
        if trivial_guess(first, one.outputs, other, three.outputs):
            self.flags.append("trivial")
        self._first = first if not large(place(self.expected_specs)[1]) else None

    @property
    def first_inputs(self) -> Values:
        """Those that the task was prepared with. Where outputs are gigabytes they are drawn again: no outputs are kept that belong to them."""
        if self.expectations.first is not None:
            return self.expectations.first.values
        return self._first if self._first is not None else self.reference.inputs(self._first_seed)

    @property
    def input_bytes(self) -> int:
        return place(self.input_specs)[1]

    def ledger(self) -> Ledger:
        reference = self.reference
        state = sum(entry.spec.nbytes for entry in reference.state if entry.alias is None)
        outputs, process = place(self.expected_specs)[1], reference.pool.device.process_bytes
        return Ledger(self.input_bytes, outputs, state, reference.eager_bytes, reference.oracle_bytes, process)

    # The program's side

    def run(self, subject: Subject) -> Verdict:
        """All trials; the first that is wrong ends them. Raises `PartyFailure` for the program's crashes, `LayoutError` for unusable answers."""
        verdict = Verdict(flags=list(self.flags))
        self.done = []
        self.reference.take_state(self.original)
        refused = self._construct(subject, self.original)
        self.seeded = False
        if refused and self.reference.state:
            self._without_weights()
            verdict.weights = "seeded"
            message = f"the task's state dict does not load strictly, so both sides were constructed under one seed: {first_lines(refused)}"
            verdict.findings.append(Finding(rule="weights", severity="note", message=message, source="runtime"))
            self._construct(subject, self.original)
        begin = time.monotonic()
        plan = Plan(self.reference, self.draws, self.original, self.full, any(spec.floating for spec in self.input_specs), lambda: self.first_inputs)
        for number, step in enumerate(plan.steps(self.expectations)):
            if number >= LEAST_TRIALS and time.monotonic() - begin > self.limits.correctness:
                break
            if step.weights is not None and self.seeded:
                continue
            trial = self._one(step, subject)
            if trial is None:
                continue
            if self.backward:
                trial.name = f"grad {trial.name}"
            self.done.append(trial)
            if trial.ok:
                continue
            if step.weights is None or not all(earlier.ok for earlier in self.done[:-1]):
                verdict.wrong = f"{step.name}: {trial.detail}"
                break
            assumed = self._assumed(step, subject)
            if assumed:
                verdict.wrong = f"{step.name}: {trial.detail} ({assumed})"
                break
            # Right as constructed, wrong once other weights are loaded: what it computes from them, it computes in its constructor.
            self.done.pop()
            self._without_weights()
            self._construct(subject, self.original)
            verdict.weights = "seeded"
            message = f"results are right only with the weights that the constructor makes; after another state dict is loaded: {trial.detail}"
            verdict.findings.append(Finding(rule="weights", severity="downgrade", message=message, source="runtime"))
        noise: list[Flag] = ["trivial"] if self.expectations.noise and "trivial" not in self.flags else []
        verdict.flags = [*self.flags, *noise]
        return verdict

    def _one(self, step: Step, subject: Subject) -> Trial | None:
        """Null where the task does not bear such inputs."""
        if step.weights is not None:
            weights = step.weights()
            self.reference.take_state(weights)
            self._construct(subject, weights)
            del weights
        try:
            values = step.draw()
            if values is None:
                return None
            trial = self._trial(step, values)
            self.on_progress(f"{step.name}: {'ok' if trial.ok else trial.detail}")
        except Skipped as reason:
            self.on_progress(f"{step.name}: skipped, {reason}")
            trial = None
        if step.weights is not None:
            self.reference.take_state(self.original)
            self._construct(subject, self.original)
        return trial

    def _assumed(self, step: Step, subject: Subject) -> str:
        """Why a program that fails with other weights is wrong, rather than one that transforms its weights in the constructor: that one fails with
        whatever is loaded, whereas one that takes a zero bias or a scale of one for granted is right while these stay."""
        fixed = [index for index, tensor in enumerate(self.original) if constant(tensor)]
        loose = [i for i, entry in enumerate(self.reference.state) if entry.parameter and entry.spec.floating and i not in fixed]
        names = ", ".join(self.reference.state[index].name for index in fixed[:4])
        if not fixed:
            return ""
        if not loose:
            return f"it takes the values for granted that the constructor gives to {names}"
        drawn = step.weights
        assert drawn is not None

        def weights() -> list[torch.Tensor]:
            return [own if index in fixed else other for index, (own, other) in enumerate(zip(self.original, drawn(), strict=True))]

        trial = self._one(Step(step.name, step.seed, step.draw, weights), subject)
        return f"it takes the values for granted that the constructor gives to {names}" if trial is not None and trial.ok else ""

    def reconstruct(self, subject: Subject, stay: bool = True, weights: list[torch.Tensor] | None = None) -> None:
        """The program in another runner, as it was when the trials ended, or with other `weights`; with `stay`, later questions go to that runner."""
        if stay:
            self.examiner.last = None
            self.reference.take_state(self.original)
        self._construct(subject, self.original if weights is None else weights, stay)

    def _without_weights(self) -> None:
        """From now on both sides have the weights that their constructors make under one seed. Names then mean nothing, so that only the gradients
        of inputs are compared."""
        self.seeded = True
        wanted = self.reference.backward
        if wanted is None:
            return
        self.reference.backward = {**wanted, "sources": [name for name in wanted["sources"] if name.startswith("input ")]}
        run = self.reference.eager(self.first_inputs, 1)
        self.reference.rollback()
        self.expected_specs, self.tree = run.outputs.specs, run.outputs.tree
        self.expectations = Expectations(self.reference, self.draws, lambda: self.first_inputs)

    def _construct(self, subject: Subject, state: list[torch.Tensor], stay: bool = True) -> str:
        """A fresh `ModelNew`; returns why the state dict was refused, or nothing."""
        if stay:
            self.subject = subject
        reference, runner = self.reference, subject.runner
        specs = [entry.spec for entry in reference.state]
        message: dict[str, Any] = {
            "need": EASE * place(specs)[1],
            "seed": self.weight_seed,
            "init": {"tree": reference.init.tree, **give(runner, "init", reference.init.tensors, reference.init.specs)},
            "names": [entry.name for entry in reference.state],
            "state": give(runner, "state", state, specs) if not self.seeded else None,
        }
        answer = runner.ask("construct", message, self.limits.load)
        if reference.pool.device.kind == "cuda":  # on the CPU, where the program is observed, it is constructed once more
            release(runner, "state")
        subject.caller = Caller(runner, self.expected_specs, self.limits.call, backward=reference.backward, need=self.ledger().program())
        return answer.text("refused")

    # One trial

    def _trial(self, step: Step, values: Values) -> Trial:
        strict = step.weights is None and step.name not in DISTRIBUTIONS
        rng = step.known.rng if step.known is not None else self.draws.getrandbits(32)
        try:
            expected = step.known or self.expectations.expect(values, rng, strict)
        except PartyFailure as failure:
            if failure.request != "memory":
                failure.request = "memory" if failure.error_class == SHORT else "start"
                failure.message = f"the reference failed: {failure.message}"
            raise
        if step.name.startswith("task inputs"):
            self.expectations.remember(expected)
        assert self.subject is not None and self.subject.caller is not None
        caller = self.subject.caller
        if [spec.nbytes for spec in caller.expected] != [spec.nbytes for spec in expected.outputs.specs]:  # another shape
            caller.expected, caller.previous = expected.outputs.specs, []
        self.reference.rest(EASE * (values.nbytes + expected.outputs.nbytes))
        try:
            call = caller.call(values, rng, flush=False, fresh_address=step.fresh, reread=True)
        except PartyFailure as failure:
            if failure.error_class != "NoGradient":
                raise
            return Trial(name=step.name, seed=step.seed, ok=False, detail=failure.message)
        runner, state = self.subject.runner, not self.seeded
        trial = self.examiner.examine(step.name, step.seed, call, expected, runner, state)
        if not trial.ok and trial.bound is not None and expected.in_reach(trial.error):
            self.expectations.appeal(expected)
            if step.name.startswith("task inputs"):
                self.expectations.remember(expected)
            trial = self.examiner.examine(step.name, step.seed, call, expected, runner, state)
        if trial.ok:
            self.examiner.accept(call, expected)
        return trial

    # After the trials

    @property
    def keeps_inputs(self) -> bool:
        """Whether the first inputs are there without asking the reference."""
        return self.expectations.first is not None or self._first is not None

    def first_call(self, caller: Caller) -> tuple[Call, Values]:
        """Of a baseline, for the first inputs, with the weights of the constructor."""
        with self.lock:
            values = self.first_inputs
        return caller.call(values, self.expectations.first_rng or 1, flush=False), values

    def baseline_off(self, caller: Caller) -> str:
        """Empty, or how the output of such a call is off: then it is no baseline."""
        rng = self.expectations.first_rng
        call, values = self.first_call(caller)
        if self.stochastic or rng is None:
            return ""  # a compiler may draw other numbers
        with self.lock:
            trial = self._beside_eager(call, values, rng) if self.expectations.first is None else self._beside_fp64(call, values)
            self.reference.rest(EASE * (values.nbytes + place(call.specs)[1]))
        return "" if trial.ok else trial.detail

    def _beside_fp64(self, call: Call, values: Values) -> Trial:
        expected = self.expectations.recall(values)
        trial = compared("baseline", 0, call, expected)
        if not trial.ok and trial.bound is not None and expected.in_reach(trial.error):
            self.expectations.appeal(expected)
            trial = compared("baseline", 0, call, expected)
        return trial

    def _beside_eager(self, call: Call, values: Values, rng: int) -> Trial:
        """Of gigabytes nothing in fp64 was kept: they are held to what timed calls are."""
        self.reference.take_state(self.reference.state_tensors)
        run = self.reference.eager(values, rng)
        self.reference.rollback()
        outputs = run.outputs.tensors
        return compare_outputs("baseline", 0, call, run.outputs, outputs, outputs, *self.expectations.timed_bounds())

    def peak_bytes(self) -> int | None:
        """Of the program's calls; null before the first."""
        if self.subject is None:
            return None
        group = self.subject.runner.spawned.group
        if self.reference.pool.device.kind == "cpu":
            measured = group.peak_bytes() if group is not None else None
            if measured is not None:
                return measured
        value = self.subject.runner.ask("peak", {}, self.limits.call).message.get("bytes")
        return value if isinstance(value, int) else None

    def bytes_moved(self) -> int:
        """Inputs and weights read once, outputs written once."""
        state = sum(entry.spec.nbytes for entry in self.reference.state if entry.alias is None)
        return state + self.input_bytes + place(self.expected_specs)[1]

    def make_room(self, ended: bool = False) -> None:
        """Before the timed calls, and when they have `ended`: processes keep nothing that they do not need, where memory is short."""
        need = EASE * (self.input_bytes + place(self.expected_specs)[1])
        self.reference.rest(need)
        if self.subject is not None and self.reference.pool.device.short(need):
            if ended:
                self.reference.end_eager()
            if self.subject.caller is not None:
                self.subject.caller.previous = []
            self.subject.runner.ask("trim", {"need": need}, self.limits.call)
