"""The program's side of a trial: constructs the program, calls it, and keeps track of the outputs of earlier calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.correctness.bounds import same_values
from verifier.correctness.examining import Examiner
from verifier.correctness.expectation import SHORT, Expected, Skipped
from verifier.correctness.prepared import Prepared
from verifier.correctness.trial_plan import Step, Way
from verifier.correctness.weights import Constructions
from verifier.judge.asking import Party
from verifier.judge.memory import EASE, large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import ReferenceSession, Values
from verifier.layout import Spec, place
from verifier.parties.owning import HELD_CALLS
from verifier.report import Trial
from verifier.timing.blocks import Caller
from verifier.timing.call import Call

AGAIN_SECONDS = 1.0  # time limit for calls that only test whether earlier outputs are overwritten
PATIENCE = 10  # time limit for all the program's calls together, as a multiple of the limit on the trials
LEAST_PATIENCE = 20.0  # minimum in seconds


@dataclass
class Subject:
    """A runner that has imported the program."""

    runner: Party
    caller: Caller | None = None
    met: list[tuple[Any, list[Spec]]] = field(default_factory=list)  # forms of inputs with which the current object has been called


class Calls(Prepared):
    """Calls of one program with the task's inputs; each call is compared with the task's result for the same inputs."""

    def __init__(
        self, reference: ReferenceSession, seed: int, full: bool, on_progress: Callable[[str], None], backward: bool = False, program: str = ""
    ):
        super().__init__(reference, seed, full, on_progress, backward, program)
        self.subject: Subject | None = None
        self.done: list[Trial] = []
        self.examiner = Examiner(reference)
        self.constructions = Constructions(reference, self.weight_seed)
        self.program_seconds = self.compiling_seconds = 0.0  # of all its calls, and of those in which torch.compile may compile
        self.laid = False  # whether the layout of any of the program's outputs differed from the task's

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
        subject.met = []
        subject.caller = Caller(subject.runner, room, self.limits.call, backward=wanted, need=need, layout=self.layout)

    def _begin_again(self, subject: Subject) -> None:
        """Constructs both sides again, with the original weights."""
        self.reference.take_state(self.original)
        self._construct(subject, self.original)

    def state_names(self) -> list[str]:
        """Returns the program's names for the entries that the task changes."""
        return self.constructions.binding.of(self.reference.mutated)

    @property
    def moves(self) -> bool:
        """Returns whether a call leaves something behind that later calls may depend on."""
        return bool(self.reference.mutated or self.reference.remembers)

    def _trial(self, step: Step, way: Way, values: Values) -> Trial:
        rng = step.known.rng if step.known is not None else self.draws.getrandbits(32)
        try:
            expected = step.known or self.expectations.expect(values, rng, step.kind == "own")
        except PartyFailure as failure:
            if failure.request != "memory":
                failure.request = "memory" if failure.error_class == SHORT else "start"
                failure.message = f"the reference failed: {failure.message}"
            raise
        if step.kind in ("numbers", "empty rows") and (why := self._says_nothing(expected, step.kind == "empty rows")):
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
        if not trial.ok and (equal or (trial.bound is not None and expected.in_reach(trial.error, call.outputs))):
            self.expectations.appeal(expected)
            self.expectations.near_ties(expected, call.outputs)
            if own:
                self.expectations.remember(expected)
            trial = self.examiner.examine(name, step.seed, call, expected, self.subject.runner, self.state_names())
        if not trial.ok and equal and self._ranks(expected):
            self.examiner.pass_over()
            raise Skipped("the task ranks numbers, and leaves open which of equal ones comes first")
        if trial.ok:
            self.examiner.accept(call, expected)
        return trial

    def _says_nothing(self, expected: Expected, empty: bool = False) -> str:
        """Returns the reason why a call with another argument, or with an `empty` row in its masks, tests nothing; an empty string if it is a valid
        trial."""
        first = self.expectations.first
        if first is None:
            return ""
        if empty:  # without code for such a row, its result is that of numbers that nobody means, and a program may skip them
            said = any(_zero_rows(now) > _zero_rows(then) for now, then in zip(expected.outputs.tensors, first.outputs.tensors, strict=True))
            return "" if said else "the task gives no zeros for it"
        if expected.outputs.specs != first.outputs.specs:
            return "the argument decides the sizes of outputs"
        same = all(map(same_values, expected.outputs.tensors, first.outputs.tensors)) and not expected.run.changed_inputs
        return "the task does the same with another value" if same and not self.reference.mutated else ""

    def _ranks(self, expected: Expected) -> bool:
        """Returns whether the task sorts or ranks numbers. Before and after this method, the reference is in the state left by its eager call."""
        self.reference.rollback()
        return self.reference.eager(expected.values, expected.rng, dropping="low").orders

    def _held_call(self, caller: Caller, values: Values, rng: int, fresh: bool, aliased: list[str]) -> Call:
        call = self._timed_call(caller, values, rng, fresh)
        self.laid = self.laid or call.laid
        if not large(sum(spec.nbytes for spec in caller.expected)):
            self.examiner.note(call, aliased)
        return call

    def _timed_call(self, caller: Caller, values: Values, rng: int, fresh: bool) -> Call:
        """Makes a call within the time budget shared by all trials, apart from those in which a compiler may compile, which have their own. Raises
        `PartyFailure` if the call fails or the calls together exceed the budget."""
        compiling = self._compiling(values)
        allowed = self.first_calls.left(caller.party) if compiling else 0.0
        begin = self.reference.clock()
        try:
            with self.first_calls.longer(caller) if compiling else contextlib.nullcontext():
                return caller.call(values, rng, flush=False, fresh_address=fresh, reread=True)
        finally:
            seconds = self.reference.clock() - begin
            self.program_seconds += seconds
            self.compiling_seconds += min(seconds, allowed)
            spent = self.program_seconds - self.compiling_seconds
            if spent > max(PATIENCE * self.limits.correctness, LEAST_PATIENCE):
                message = f"its calls in the trials took {spent:.0f} s together, which is too slow to try them all"
                raise PartyFailure("timed_out", message, request="call")

    def _compiling(self, values: Values) -> bool:
        """Returns whether torch.compile or Triton's autotuner may compile in the next call. Another shape or another plain value causes a
        recompilation, and so may another object, although torch.compile usually finds the previous object's code. An autotuner's key may depend on
        any number."""
        if not self.first_calls.compiles or self.subject is None:
            return False
        if self.first_calls.tunes:
            return True
        form = (values.tree, values.specs)
        new = form not in self.subject.met
        self.subject.met += [form] if new else []
        return new

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

    def _record(self, trial: Trial) -> Trial:
        if self.backward:
            trial.name = f"grad {trial.name}"
        self.done.append(trial)
        self.on_progress(f"{trial.name}: {'ok' if trial.ok else trial.detail}")
        return trial

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


def _zero_rows(output: torch.Tensor) -> int:
    zero = output == 0
    return int((zero.all(-1) if zero.dim() > 1 else zero).sum())
