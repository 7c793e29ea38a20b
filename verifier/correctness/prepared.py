"""The task's side of the `correctness` stage: the reference with the evaluation's weights and its first inputs, and baselines compared with it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import torch

from verifier.correctness.chance import stochastic
from verifier.correctness.comparison import compare_outputs
from verifier.correctness.examining import changes_off, compared, writes_off
from verifier.correctness.expectation import Expectations
from verifier.correctness.triviality import trivial_guess
from verifier.judge.first_calls import FirstCalls
from verifier.judge.memory import EASE, Ledger, large
from verifier.judge.session import ReferenceSession, Values
from verifier.layout import place
from verifier.report import Trial
from verifier.task import Flag
from verifier.timing.blocks import Caller, kept
from verifier.timing.call import Call


class Prepared:
    """The task in the state in which every trial starts. Later seeds come from `draws`, which fixes their order. `program` is the source of the
    program that will be tried."""

    def __init__(
        self, reference: ReferenceSession, seed: int, full: bool, on_progress: Callable[[str], None], backward: bool = False, program: str = ""
    ):
        self.reference = reference
        self.limits = reference.limits
        self.seed = seed
        self.full = full
        self.backward = backward
        self.first_calls = FirstCalls(reference.pool, program)
        self.lock = threading.Lock()  # baselines start in parallel, but they share a single reference
        self.on_progress = on_progress
        self.draws = random.Random(seed)  # seeds are drawn in a fixed order
        self.weight_seed = self.draws.getrandbits(32)
        self.stochastic = False
        self.flags: list[Flag] = []
        self.expectations = Expectations(reference, self.draws, lambda: self.first_inputs)
        self.original: list[torch.Tensor] = []
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
        """Returns the inputs with which the task was prepared. If outputs take up gigabytes, the inputs are drawn again, because no matching outputs
        are kept."""
        if self.expectations.first is not None:
            return self.expectations.first.values
        return self._first if self._first is not None else self.reference.inputs(self._first_seed)

    @property
    def keeps_inputs(self) -> bool:
        """Returns whether the first inputs are available without a request to the reference."""
        return self.expectations.first is not None or self._first is not None

    @property
    def input_bytes(self) -> int:
        return place(self.input_specs)[1]

    def bytes_moved(self) -> int:
        """Returns the total number of bytes moved if inputs and weights are read once and outputs are written once."""
        state = sum(entry.spec.nbytes for entry in self.reference.state if entry.alias is None)
        return state + self.input_bytes + place(self.expected_specs)[1]

    def ledger(self) -> Ledger:
        reference = self.reference
        state = sum(entry.spec.nbytes for entry in reference.state if entry.alias is None)
        outputs, process = place(self.expected_specs)[1], reference.pool.device.process_bytes
        return Ledger(self.input_bytes, outputs, state, reference.eager_bytes, reference.oracle_bytes, process)

    def first_call(self, caller: Caller) -> tuple[Call, Values]:
        """Calls a baseline once, with the first inputs and the constructor's weights."""
        with self.lock:
            values = self.first_inputs
        return caller.call(values, self.expectations.first_rng or 1, flush=False), values

    def baseline_off(self, caller: Caller) -> str:
        """Describes what is wrong with the outputs of such a call, or with the inputs that it writes to, which disqualifies the baseline. Returns an
        empty string if it is correct."""
        rng = self.expectations.first_rng
        call, values = self.first_call(caller)
        if self.stochastic or rng is None:
            return ""  # a compiled model may draw different random numbers
        with self.lock:
            beside_fp64 = self.expectations.first is not None
            trial, written = self._beside_fp64(call, values) if beside_fp64 else self._beside_eager(call, values, rng)
            self.reference.rest(EASE * (values.nbytes + place(call.specs)[1]))
        return trial.detail if not trial.ok else written

    def _beside_fp64(self, call: Call, values: Values) -> tuple[Trial, str]:
        """Compares a call with fp64. Also describes what is wrong with the inputs that the task writes to, or returns an empty string for them."""
        expected = self.expectations.recall(values)
        trial = compared("baseline", 0, call, expected, self.reference.precision)
        if not trial.ok and trial.bound is not None and expected.in_reach(trial.error):
            self.expectations.appeal(expected)
            trial = compared("baseline", 0, call, expected, self.reference.precision)
        return trial, changes_off(call, expected)

    def _beside_eager(self, call: Call, values: Values, rng: int) -> tuple[Trial, str]:
        """Does the same, but compares the call with eager, by the bounds for timed calls, because large fp64 outputs are not kept."""
        self.reference.take_state(self.reference.state_tensors)
        run = self.reference.eager(values, rng)
        self.reference.rollback()
        outputs, bounds = run.outputs.tensors, self.expectations.timed_bounds()
        after = {index: call.after.get(index, values.tensors[index]) for index in run.after}
        written = writes_off(after, run.after, bounds[0], max(bounds[1], default=0.0))
        return compare_outputs("baseline", 0, call, run.outputs, outputs, outputs, *bounds), written
