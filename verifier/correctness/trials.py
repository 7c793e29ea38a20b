"""The stage `correctness`, which calls the program several times in its runner and compares each call with the reference's fp64 result for the same
secret inputs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from verifier.correctness.bearing import borne_alone
from verifier.correctness.bounds import same_values
from verifier.correctness.chance import stochastic
from verifier.correctness.comparison import compare_outputs
from verifier.correctness.examining import Examiner, compared
from verifier.correctness.expectation import SHORT, Expectations, Expected, Skipped, first_lines
from verifier.correctness.inputs import DISTRIBUTIONS, MIXED
from verifier.correctness.not_a_number import NOTE, Asked, judged, prepared
from verifier.correctness.trial_plan import Plan, Step, Way, Width
from verifier.correctness.triviality import trivial_guess
from verifier.correctness.weights import DIFFER, Constructions
from verifier.judge.asking import Party
from verifier.judge.memory import EASE, Ledger, large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import ReferenceSession, Values
from verifier.layout import place
from verifier.parties.owning import HELD_CALLS
from verifier.randomising import hides
from verifier.report import Finding, Trial, WeightsFrom
from verifier.task import Flag
from verifier.timing.blocks import Caller, kept
from verifier.timing.call import Call

LEAST_TRIALS = 8  # these steps run regardless of how slow they are
AGAIN_SECONDS = 1.0  # time limit for calls that only test whether earlier outputs are overwritten
RANDOM_NUMBERS = "the task draws random numbers: a program has to take torch's, from the same calls of its generator"
SEEDS = 3  # number of constructions if weights cannot be loaded
PATIENCE = 10  # time limit for all of the program's calls together, as a multiple of the trials' own limit
CONSTRUCTIONS = (1, 3)  # range of the number of constructions before the trial that constructs again
LEAST_PATIENCE = 20.0  # minimum in seconds


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
    untried: list[str] = field(default_factory=list)  # trials that were skipped, each with the reason


class Trials:
    def __init__(self, reference: ReferenceSession, seed: int, full: bool, on_progress: Callable[[str], None], backward: bool = False):
        self.reference = reference
        self.limits = reference.limits
        self.seed = seed
        self.full = full
        self.backward = backward
        self.lock = threading.Lock()  # baselines start in parallel, but they share a single reference
        self.on_progress = on_progress
        self.draws = random.Random(seed)  # seeds are drawn in a fixed order
        self.weight_seed = self.draws.getrandbits(32)
        self.done: list[Trial] = []
        self.subject: Subject | None = None
        self.stochastic = False
        self.flags: list[Flag] = []
        self.expectations = Expectations(reference, self.draws, lambda: self.first_inputs)
        self.examiner = Examiner(reference)
        self.original: list[torch.Tensor] = []
        self.constructions = Constructions(reference, self.weight_seed)
        self.program_seconds = 0.0
        self.borne: Width | None = None  # how widely the task lets other weights vary (`other_weights`); null until some have been tried
        self.laid = False  # whether the layout of any of the program's outputs differed from the task's
        self._first: Values | None = None

    def prepare(self) -> None:
        """Loads the task with the evaluation's seed and determines whether it is stochastic. Raises `PartyFailure` if the task is at fault."""
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
        self.input_specs, self.expected_specs, self.layout = first.specs, one.outputs.specs, one.layout
        if self.stochastic:
            self.flags.append("stochastic")
        if trivial_guess(first, one.outputs, other, three.outputs):
            self.flags.append("trivial")
        self._first = first if not large(place(self.expected_specs)[1]) else None

    @property
    def first_inputs(self) -> Values:
        """Returns the inputs with which the task was prepared. If outputs take gigabytes, the inputs are drawn again, because no matching outputs are
        kept."""
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
        """Runs all trials and stops at the first wrong result. Raises `PartyFailure` if the program crashes, and `LayoutError` if its answers are
        unusable."""
        verdict = Verdict(flags=list(self.flags))
        self.done, self.program_seconds, self.borne = [], 0.0, None
        self.reference.take_state(self.original)
        self.constructions = Constructions(self.reference, self.weight_seed)
        refused = self._construct(subject, self.original)
        if refused and self.reference.state:
            self.constructions.match(subject.runner, self.original)
            self._construct(subject, self.original)
            self._bound(verdict, f"the task's state dict does not load strictly ({first_lines(refused)})")
        verdict.wrong = self._no_counterpart()
        begin = self.reference.clock()
        plan = Plan(self.reference, self.draws, self.original, self.full, lambda: self.first_inputs)
        for number, step in enumerate(plan.steps(self.expectations) if not verdict.wrong else ()):
            spent = self.reference.clock() - begin - self.program_seconds  # a slow program does not cause trials to be skipped
            if not step.needed and number >= LEAST_TRIALS and spent > self.limits.correctness:
                verdict.untried.append(f"{step.name}: the task is slow")
                continue
            verdict.wrong = self._wrong(step, plan, subject, verdict)
            if verdict.wrong:
                break
        verdict.wrong = verdict.wrong or self._overwritten()
        if self.laid:
            message = "outputs have another layout than the task's: they are copied to the task's layout before the clock stops"
            verdict.findings.append(Finding(rule="layout", severity="note", message=message, source="runtime"))
        self._flag(verdict)
        return verdict

    def _bound(self, verdict: Verdict, why: str) -> None:
        """Records how the program receives its weights from now on."""
        how = verdict.weights = self.constructions.binding.how
        done = "they are matched by equal values under one seed" if how == "matched" else "both sides are only constructed, under several seeds"
        message = f"{DIFFER}: {why}, so {done}"
        verdict.findings.append(Finding(rule="weights", severity="note" if how == "matched" else "downgrade", message=message, source="runtime"))

    def _no_counterpart(self) -> str:
        """Reports that the program lacks one of the task's entries (state that changes, or a parameter whose gradient is requested). Returns an empty
        string if none is missing."""
        wanted = self.reference.backward["sources"] if self.reference.backward is not None else []
        loaded = {entry.name for entry in self.reference.state}
        named = [*(name for name in self.reference.mutated if name in loaded), *(name for name in wanted if not name.startswith("input "))]
        missing = self.constructions.binding.missing(named)
        return f"{DIFFER}: there is nothing that could be the task's {missing[0]}" if missing else ""

    def _wrong(self, step: Step, plan: Plan, subject: Subject, verdict: Verdict) -> str:
        """Describes how the program is wrong in this step. Returns an empty string if it is correct."""
        seeded = self.constructions.binding.how == "seeded"
        if (step.kind in ("weights", "constructed again") or (step.kind == "not a number" and self.moves)) and (stale := self._overwritten()):
            return stale
        if step.kind == "constructed again":
            self._construct_again(step, subject)
        if step.kind == "not a number":
            trial = self._not_a_number(step, verdict)
        else:
            trial = self._several(step, subject) if seeded and step.kind == "weights" else self._one_or_refused(step, plan, subject, verdict)
        if trial is None or trial.ok:
            return ""
        if step.kind != "weights" or not all(earlier.ok for earlier in self.done[:-1]):
            drawn = f" ({RANDOM_NUMBERS})" if self.stochastic and trial.bound is not None and trial.output.startswith("out") else ""
            return f"{trial.name}: {trial.detail}{drawn}"
        if seeded:
            return f"{DIFFER}: {trial.name}: {trial.detail}"
        assumed = self._assumed(step, plan, subject, verdict)
        if assumed:
            return f"{trial.name}: {trial.detail} ({assumed})"
        # The program is correct as constructed but wrong after other weights are loaded, so its constructor may derive values from its weights.
        self.done.pop()
        self.constructions.seeded(subject.runner)
        self._construct(subject, self.original)
        self._bound(
            verdict, f"results are right only with the weights that the constructor makes (after another state dict is loaded: {trial.detail})"
        )
        missing = self._no_counterpart()
        if missing:
            return missing
        trial = self._several(step, subject)
        return "" if trial.ok else f"{DIFFER}: {trial.name}: {trial.detail}"

    def _one_or_refused(self, step: Step, plan: Plan, subject: Subject, verdict: Verdict) -> Trial | None:
        """Runs a step with other numbers as arguments. A program may be specialised for the original numbers if it raises an error for others."""
        try:
            return self._one(step, plan, subject, verdict)
        except PartyFailure as failure:
            if step.kind != "numbers" or failure.kind != "raised" or failure.request in ("memory", "start") or failure.error_class == SHORT:
                raise
            message = (
                f"made for the plain values among the task's arguments; with {step.name} it raises {failure.error_class}: "
                f"{first_lines(failure.message)}"
            )
            verdict.findings.append(Finding(rule="numbers", severity="note", message=message[:300], source="runtime"))
            self._begin_again(subject)
            return None

    def _begin_again(self, subject: Subject) -> None:
        """Constructs both sides again, with the original weights."""
        self.reference.take_state(self.original)
        self._construct(subject, self.original)

    def _one(self, step: Step, plan: Plan, subject: Subject, verdict: Verdict) -> Trial | None:
        """Runs a step in the first way that the task can handle. Returns null if there is none."""
        reason = "there is nothing to vary"
        for way in step.ways:
            anew = False  # whether the reference is in its constructed state, without the changes that calls make
            if way.weights is not None:
                weights = way.weights()
                self.reference.take_state(weights)
                self._construct(subject, weights)
                del weights
            try:
                if way.domain is MIXED and plan.each is None:
                    plan.each, anew = borne_alone(self.reference, self.expectations, step.seed)
                    if anew:
                        self._begin_again(subject)
                values = way.draw()
                trial = self._record(self._trial(step, way, values)) if values is not None else None
                borne = trial is not None
            except Skipped as skipped:
                trial, borne, reason, anew = None, False, str(skipped), skipped.anew
            except PartyFailure as failure:
                if step.kind == "own" or failure.whose != "reference" or not self.reference.outlive():
                    raise
                trial, borne, reason, anew = None, False, "the task does not accept such inputs", True
            if way.weights is not None or anew:
                self._begin_again(subject)
            plan.bears(way, borne)
            if borne and way.wide is not None:
                self.borne = way.wide
            if trial is not None:
                return trial
        verdict.untried.append(f"{step.name}: {reason}")
        self.on_progress(f"{step.name}: skipped, {reason}")
        return None

    def _not_a_number(self, step: Step, verdict: Verdict) -> Trial | None:
        """Calls the program with inputs that contain NaN, and with inputs that contain infinity. If calls change the state, both sides start afresh
        before and after each call, because NaN would stay in the state."""
        first, subject = self.expectations.first, self.subject
        if first is None or subject is None:
            return None
        trial = None
        if self.moves:
            self._begin_again(subject)
        calls = prepared(self.reference, first.values, first.run.outputs.tensors, first.rng, self.draws)
        while trial is None or trial.ok:
            try:
                asked = next(calls, None)
            except PartyFailure as failure:
                if failure.kind != "raised" or failure.error_class == SHORT:
                    raise
                self.reference.outlive()
                self._begin_again(subject)
                verdict.untried.append(f"{step.name}: the task does not accept such inputs")
                break
            if asked is None:
                break
            trial = self._lost(step, asked, first, subject, verdict)
            del asked
            if self.moves:
                self._begin_again(subject)
        return self._record(trial) if trial is not None else None

    def _lost(self, step: Step, asked: Asked, first: Expected, subject: Subject, verdict: Verdict) -> Trial:
        assert subject.caller is not None
        call = self._held_call(subject.caller, asked.values, asked.rng, step.fresh, first.run.aliased)
        self.examiner.pass_over()
        if len(call.outputs) != len(asked.required) or any(a.shape != b.shape for a, b in zip(call.outputs, first.run.outputs.tensors, strict=True)):
            return Trial(name=step.name, seed=step.seed, ok=False, detail="the outputs were not delivered")
        detail, swallowed = judged(asked, call.outputs, self.reference, first.run.outputs.tree)
        if swallowed and not detail and not any(finding.rule == "nan" for finding in verdict.findings):
            verdict.findings.append(Finding(rule="nan", severity="note", message=NOTE, source="runtime"))
        return Trial(name=step.name, seed=step.seed, ok=not detail, detail=detail)

    @property
    def moves(self) -> bool:
        """Returns whether a call leaves something behind that later calls may depend on."""
        return bool(self.reference.mutated or self.reference.remembers)

    def _overwritten(self) -> str:
        """Describes how outputs of earlier calls have changed. Returns an empty string if they have not. If necessary, first makes further calls
        until more than `HELD_CALLS` have been made on the object. They also change the state, but the object is not used afterwards."""
        caller, first = self.subject.caller if self.subject is not None else None, self.expectations.first
        if caller is None or not self.examiner.calls or not caller.party.alive:
            return ""
        if first is not None and caller.expected == first.outputs.specs:
            begin = time.monotonic()
            while len(self.examiner.calls) <= HELD_CALLS and time.monotonic() - begin < AGAIN_SECONDS:
                self._held_call(caller, first.values, first.rng, True, first.run.aliased)
        found = self.examiner.overwritten(caller)
        self.examiner.begin()
        caller.previous = []
        return found

    def _held_call(self, caller: Caller, values: Values, rng: int, fresh: bool, aliased: list[str]) -> Call:
        call = self._timed_call(caller, values, rng, fresh)
        self.laid = self.laid or call.laid
        if not large(sum(spec.nbytes for spec in caller.expected)):
            self.examiner.note(call, aliased)
        return call

    def _construct_again(self, step: Step, subject: Subject) -> None:
        """Constructs the object again an unpredictable number of times and calls it once with inputs that differ from the trial's. The trial's call
        then exposes a program that starts to cache results only at its n-th construction."""
        state = sum(tensor.nbytes for tensor in self.original)
        for _ in range(1 if large(16 * state) else self.draws.randint(*CONSTRUCTIONS)):
            self._construct(subject, self.original)
        if self.reference.mutated:  # both sides start afresh
            self.reference.take_state(self.original)
            return
        caller, first = subject.caller, self.expectations.first
        values = self.reference.inputs(step.seed)
        if caller is not None and first is not None and caller.expected == first.outputs.specs and values.specs == first.values.specs:
            self._held_call(caller, values, first.rng, True, first.run.aliased)
            self.examiner.pass_over()

    def _several(self, step: Step, subject: Subject) -> Trial:
        """Tries other weights if both sides are only constructed. Uses several seeds and stops at the first wrong result."""
        trial = Trial(name=step.name, seed=step.seed, ok=True)
        try:
            for number in range(1, SEEDS + 1):
                name, seed = f"{step.name}, constructed {number}", (step.seed + number) % 2**32
                stayed = self.constructions.anew(subject.runner, seed)
                if stayed:
                    return Trial(name=name, seed=seed, ok=False, detail=f"only loading gives {stayed} other values")
                self._call_anew(subject)
                values = self.reference.inputs(seed)
                try:
                    trial = self._record(self._trial(Step(name, seed, [], "weights"), Way(lambda: None), values))
                except Skipped:
                    continue
                if not trial.ok:
                    break
        finally:
            if subject.runner.alive and self.reference.party.alive:
                self.constructions.restore(subject.runner)
                self._call_anew(subject)
        return trial

    def _record(self, trial: Trial) -> Trial:
        if self.backward:
            trial.name = f"grad {trial.name}"
        self.done.append(trial)
        self.on_progress(f"{trial.name}: {'ok' if trial.ok else trial.detail}")
        return trial

    def _assumed(self, step: Step, plan: Plan, subject: Subject, verdict: Verdict) -> str:
        """Explains why a program that fails with other weights is wrong, unless it only transforms its weights in the constructor. Such a program
        fails with any loaded weights. By contrast, a program that assumes a zero bias or a scale of one is correct as long as these stay
        unchanged."""
        names = [entry.name for entry in self.reference.state]
        constant = plan.constants
        fixed = [i for i, entry in enumerate(self.reference.state) if hides(self.original[i], entry.parameter) or i in constant]
        loose = [i for i, entry in enumerate(self.reference.state) if entry.parameter and entry.spec.inexact and i not in fixed]
        buffers = [i for i, entry in enumerate(self.reference.state) if entry.spec.inexact and not entry.parameter and i not in fixed]
        for same in (fixed, [*fixed, *buffers]) if buffers else (fixed,):
            said = f"it takes the values for granted that the constructor gives to {', '.join(names[index] for index in same[:4])}"
            if same and not loose:
                return said
            if same and self._right_with(same, step, plan, subject, verdict):
                return said
        return ""

    def _right_with(self, kept: list[int], step: Step, plan: Plan, subject: Subject, verdict: Verdict) -> bool:
        """Returns whether the program is correct with other weights as long as these state entries stay unchanged."""

        def of(way: Way) -> Way:
            drawn = way.weights
            assert drawn is not None
            return replace(
                way, weights=lambda: [own if i in kept else other for i, (own, other) in enumerate(zip(self.original, drawn(), strict=True))]
            )

        trial = self._one(replace(step, ways=[of(way) for way in step.ways]), plan, subject, verdict)
        return trial is not None and trial.ok

    def _flag(self, verdict: Verdict) -> None:
        varied = [trial for trial in self.done if trial.name.removeprefix("grad ").startswith(DISTRIBUTIONS)]
        if self.expectations.noise and "trivial" not in verdict.flags:
            verdict.flags.append("trivial")
        if self.input_specs and not varied and not verdict.wrong:
            verdict.flags.append("narrow")

    def reconstruct(self, subject: Subject, stay: bool = True, weights: list[torch.Tensor] | None = None) -> None:
        """Reconstructs the program in another runner, either in its state at the end of the trials or with other `weights`. With `stay`, later
        requests go to that runner too."""
        if stay:
            self.reference.take_state(self.original)
        self._construct(subject, self.original if weights is None else weights, stay)

    def _construct(self, subject: Subject, state: list[torch.Tensor], stay: bool = True) -> str:
        """Constructs a fresh `ModelNew`. Returns the reason why the state dict was rejected, or an empty string."""
        refused = self.constructions.construct(subject.runner, state)
        self._call_anew(subject, stay)
        return refused

    def _call_anew(self, subject: Subject, stay: bool = True) -> None:
        if stay:
            self.subject = subject
            self.examiner.begin()
        wanted = self.constructions.binding.backward(self.reference.backward)
        room, need = self.expected_specs, self.ledger().program()
        subject.caller = Caller(subject.runner, room, self.limits.call, backward=wanted, need=need, layout=self.layout)

    def state_names(self) -> list[str]:
        """Returns the program's names for the entries that the task changes."""
        return self.constructions.binding.of(self.reference.mutated)

    # One trial

    def _trial(self, step: Step, way: Way, values: Values) -> Trial:
        rng = step.known.rng if step.known is not None else self.draws.getrandbits(32)
        try:
            expected = step.known or self.expectations.expect(values, rng, step.kind == "own")
        except PartyFailure as failure:
            if failure.request != "memory":
                failure.request = "memory" if failure.error_class == SHORT else "start"
                failure.message = f"the reference failed: {failure.message}"
            raise
        if step.kind == "numbers" and (why := self._says_nothing(expected)):
            self.reference.rollback()
            self.reference.exact = expected.before
            raise Skipped(why)
        own = step.name.startswith("task inputs")
        if own:
            self.expectations.remember(expected)
        assert self.subject is not None and self.subject.caller is not None
        caller = self.subject.caller
        if [spec.nbytes for spec in caller.expected] != [spec.nbytes for spec in expected.outputs.specs]:  # the output shapes differ
            caller.expected, caller.previous = expected.outputs.specs, []
        caller.layout = expected.run.layout
        self.reference.rest(EASE * (values.nbytes + expected.outputs.nbytes))
        name = f"{step.name} ({way.detail})" if way.detail else step.name
        try:
            call = self._held_call(caller, values, rng, step.fresh, expected.run.aliased)
        except PartyFailure as failure:
            if failure.error_class != "NoGradient":
                raise
            return Trial(name=name, seed=step.seed, ok=False, detail=failure.message)
        trial = self.examiner.examine(name, step.seed, call, expected, self.subject.runner, self.state_names())
        equal = step.kind == "equal numbers"
        if not trial.ok and (equal or (trial.bound is not None and expected.in_reach(trial.error))):
            self.expectations.appeal(expected)
            self.expectations.between_steps(expected, call.outputs)
            if own:
                self.expectations.remember(expected)
            trial = self.examiner.examine(name, step.seed, call, expected, self.subject.runner, self.state_names())
        if not trial.ok and equal and self._ranks(expected):
            self.examiner.pass_over()
            raise Skipped("the task ranks numbers, and leaves open which of equal ones comes first")
        if trial.ok:
            self.examiner.accept(call, expected)
        return trial

    def _says_nothing(self, expected: Expected) -> str:
        """Returns the reason why a call with another argument tests nothing, or an empty string if it is a valid trial."""
        first = self.expectations.first
        if first is None:
            return ""
        if expected.outputs.specs != first.outputs.specs:
            return "the argument decides the sizes of outputs"
        same = all(map(same_values, expected.outputs.tensors, first.outputs.tensors)) and not expected.run.changed_inputs
        return "the task does the same with another value" if same and not self.reference.mutated else ""

    def _ranks(self, expected: Expected) -> bool:
        """Returns whether the task sorts or ranks numbers. Before and after this method, the reference is in the state left by its eager call."""
        self.reference.rollback()
        return self.reference.eager(expected.values, expected.rng, dropping="low").orders

    def _timed_call(self, caller: Caller, values: Values, rng: int, fresh: bool) -> Call:
        """Makes a call within the time budget shared by all trials. Raises `PartyFailure` if the call fails or the calls together exceed the
        budget."""
        begin = time.monotonic()
        try:
            return caller.call(values, rng, flush=False, fresh_address=fresh, reread=True)
        finally:
            self.program_seconds += time.monotonic() - begin
            if self.program_seconds > max(PATIENCE * self.limits.correctness, LEAST_PATIENCE):
                message = f"its calls in the trials took {self.program_seconds:.0f} s together, which is too slow to try them all"
                raise PartyFailure("timed_out", message, request="call")

    # After the trials

    @property
    def keeps_inputs(self) -> bool:
        """Returns whether the first inputs are available without a request to the reference."""
        return self.expectations.first is not None or self._first is not None

    def first_call(self, caller: Caller) -> tuple[Call, Values]:
        """Calls a baseline once, with the first inputs and the constructor's weights."""
        with self.lock:
            values = self.first_inputs
        return caller.call(values, self.expectations.first_rng or 1, flush=False), values

    def baseline_off(self, caller: Caller) -> str:
        """Describes how the output of such a call is wrong, which disqualifies the baseline. Returns an empty string if it is correct."""
        rng = self.expectations.first_rng
        call, values = self.first_call(caller)
        if self.stochastic or rng is None:
            return ""  # a compiled model may draw different random numbers
        with self.lock:
            trial = self._beside_eager(call, values, rng) if self.expectations.first is None else self._beside_fp64(call, values)
            self.reference.rest(EASE * (values.nbytes + place(call.specs)[1]))
        return "" if trial.ok else trial.detail

    def _beside_fp64(self, call: Call, values: Values) -> Trial:
        expected = self.expectations.recall(values)
        trial = compared("baseline", 0, call, expected, self.reference.precision)
        if not trial.ok and trial.bound is not None and expected.in_reach(trial.error):
            self.expectations.appeal(expected)
            trial = compared("baseline", 0, call, expected, self.reference.precision)
        return trial

    def _beside_eager(self, call: Call, values: Values, rng: int) -> Trial:
        """Compares a call with eager. Large fp64 outputs are not kept, so such calls are judged by the bounds for timed calls."""
        self.reference.take_state(self.reference.state_tensors)
        run = self.reference.eager(values, rng)
        self.reference.rollback()
        outputs = run.outputs.tensors
        return compare_outputs("baseline", 0, call, run.outputs, outputs, outputs, *self.expectations.timed_bounds())

    def peak_bytes(self) -> int | None:
        """Returns the peak memory of the program's calls, or null before the first call."""
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
        """Returns the total number of bytes moved if inputs and weights are read once and outputs are written once."""
        state = sum(entry.spec.nbytes for entry in self.reference.state if entry.alias is None)
        return state + self.input_bytes + place(self.expected_specs)[1]

    def make_room(self, ended: bool = False) -> None:
        """Frees memory before the timed calls, and again when they have `ended`. If memory is scarce, processes keep only what they need."""
        need = EASE * (self.input_bytes + place(self.expected_specs)[1])
        self.reference.rest(need)
        if self.subject is not None and self.reference.pool.device.short(need):
            if ended:
                self.reference.end_eager()
            if self.subject.caller is not None:
                self.subject.caller.previous = []
            self.subject.runner.ask("trim", {"need": need}, self.limits.call)
