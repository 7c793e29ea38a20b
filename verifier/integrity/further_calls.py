"""Further calls of the timed process, in the form of the timed ones, whose outputs are compared like those of timed calls."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from verifier.correctness.bounds import all_finite
from verifier.correctness.comparison import compare_outputs
from verifier.correctness.examining import compared
from verifier.correctness.expectation import SHORT, Skipped
from verifier.correctness.trial_plan import Weights
from verifier.correctness.trials import Trials
from verifier.integrity.timed_process import TimedProcess
from verifier.judge.endings import Ended
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import Values
from verifier.timing.call import Call
from verifier.timing.series import Form, Use, Uses, single

FEW = 2  # number of turns for a new object, because it may pack weights in the first turn
MOST_SECONDS = 3.0  # time in seconds that an object has to become as fast as the timed object
Draw = Callable[[int], tuple[Values, int]]


@dataclass
class Changed:
    """A change under which the program's calls are timed again. `weights` is null if only the inputs change, or if both sides are only
    constructed."""

    what: str
    advice: str
    draw: Draw
    weights: Weights | None = None
    strict: bool = True  # whether the program must also be right where PyTorch itself is far from fp64


@dataclass
class Pace:
    """The turns of one object. `quickest` is the time of a call in the quickest turn, in nanoseconds, and `calm` says whether other work left the
    processors to at least one call of that turn. `made` lists all uses in order, with the calls of that turn."""

    quickest: float = float("inf")
    calm: bool = True
    turns: int = 0
    made: list[tuple[Use, Call | None]] = field(default_factory=list)

    def add(self, uses: list[Use], calls: list[Call]) -> None:
        calm = [call for call in calls if not call.preempted]
        found = statistics.median(call.inner for call in calm or calls)
        if found < self.quickest:
            self.quickest, self.calm = found, bool(calm)
            self.made = [(use, None) for use, _ in self.made]
            by_use = {id(use): call for use, call in zip([use for use in uses if use.counted], calls, strict=True)}
            self.made += [(use, by_use.get(id(use))) for use in uses]
        else:
            self.made += [(use, None) for use in uses]
        self.turns += 1


@dataclass
class FurtherCalls:
    """Makes the calls. `form` is the form of the timed series."""

    timed: TimedProcess
    trials: Trials
    form: Form | None
    rng: random.Random
    wrong: str = ""  # what is wrong with the outputs under a change

    def _made(self, work: Callable[[], None], what: str) -> None:
        """Does some of the work. Raises `Ended` if the program fails."""
        if self.wrong:
            return
        try:
            work()
        except PartyFailure as failure:
            if failure.whose == "reference" and failure.kind == "raised" and failure.error_class != SHORT:
                return  # the task cannot handle the change
            if _blameless(failure):
                raise
            how = failure.error_class or failure.kind
            raise Ended("wrong_result", f"with {what.rstrip(',')}, in calls like the timed ones: {how}: {failure.message[:300]}") from None

    @property
    def _seeded(self) -> bool:
        return self.trials.constructions.binding.how == "seeded"

    def _draw(self, number: int) -> tuple[Values, int]:
        seed = self.rng.getrandbits(32)
        return self.trials.reference.inputs(seed), seed

    def _own(self) -> None:
        """Constructs the object as it was timed."""
        self.trials.constructions.construct(self.timed.caller.party, self.trials.original)

    def _back(self) -> None:
        """Restores the task's model as constructed."""
        if self._seeded:
            self.trials.reference.redraw(self.trials.constructions.seed)
        else:
            self.trials.reference.take_state(self.trials.original)

    def _pace(self, draw: Draw, turns: int, until: float) -> Pace:
        """Makes turns until a call is as fast as `until`; makes at least `FEW` and at most `turns` turns."""
        caller, pace, begin = self.timed.caller, Pace(), time.monotonic()
        caller.previous = []
        uses = Uses(draw, random.Random(self.rng.getrandbits(64)), self.form) if self.form is not None else None
        while pace.turns < turns and (pace.turns < FEW or pace.quickest > until) and (pace.turns < FEW or time.monotonic() - begin < MOST_SECONDS):
            given = uses.next(pace.turns) if uses is not None else single(draw, pace.turns)
            pace.add(given, caller.turn(given, in_series=uses is not None))
        return pace

    def _off(self, pace: Pace, changed: Changed) -> str:
        """Describes what is wrong with the calls in the quickest turn. They are compared with eager's calls. If they differ too much, they are judged
        like trials. If calls change the task's state, eager makes all of these calls."""
        reference, trials = self.trials.reference, self.trials
        moves = bool(reference.mutated or reference.remembers)
        steps = pace.made if moves else [(use, call) for use, call in pace.made if call is not None]
        detail = ""
        for judge in (self._beside_eager, partial(self._beside_fp64, strict=changed.strict)):
            if changed.weights is not None or not self._seeded:
                reference.take_state(changed.weights or trials.original)
            elif changed.draw != self._draw:
                reference.redraw(trials.constructions.seed)
            else:
                reference.redraw(trials.constructions.drawn, vary=trials.constructions.drawn)
            detail = ""
            for use, call in steps:
                detail = judge(use.copied(), use.rng or 1, call)
                if not moves:
                    reference.rollback()
                if detail:
                    break
            if not detail:
                return ""
        return f"with {changed.what.rstrip(',')}, in calls like the timed ones: {detail}"

    def _beside_eager(self, values: Values, rng: int, call: Call | None) -> str:
        run = self.trials.reference.eager(values, rng)
        outputs = run.outputs.tensors
        if call is None or not all_are_finite(outputs):
            return ""
        trial = compare_outputs("shortcut", 0, call, run.outputs, outputs, outputs, *self.trials.expectations.timed_bounds())
        return "" if trial.ok else trial.detail or "the output is off"

    def _beside_fp64(self, values: Values, rng: int, call: Call | None, strict: bool) -> str:
        expectations, precision = self.trials.expectations, self.trials.reference.precision
        try:
            expected = expectations.expect(values, rng, strict)
        except Skipped:
            return ""
        if call is None or not all_are_finite(expected.run.outputs.tensors):
            return ""
        trial = compared("shortcut", 0, call, expected, precision)
        if not trial.ok and trial.bound is not None and expected.in_reach(trial.error, call.outputs):
            expectations.appeal(expected)
            expectations.near_ties(expected, call.outputs)
            trial = compared("shortcut", 0, call, expected, precision)
        return "" if trial.ok else trial.detail or "the output is off"


def _blameless(failure: PartyFailure) -> bool:
    """Returns whether a failure says nothing about the program."""
    return failure.kind == "wanted" or failure.whose not in ("", "program") or failure.request in ("memory", "start", "role")


def all_are_finite(tensors: list[torch.Tensor]) -> bool:
    return all(map(all_finite, tensors))


def with_inputs(values: Values, drawn: dict[int, torch.Tensor]) -> Values:
    return Values(values.tree, values.specs, [drawn.get(index, tensor) for index, tensor in enumerate(values.tensors)])
