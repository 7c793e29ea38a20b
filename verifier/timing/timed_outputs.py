"""Compares outputs of the timed calls.

Outputs of the program and of a rival are compared with those of eager in the same pair, for the same input and in any order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from verifier.correctness.bounds import FLIPPED, NORM
from verifier.correctness.comparison import compare_outputs
from verifier.correctness.decisions import off
from verifier.correctness.examining import shared_off, writes_off
from verifier.correctness.trials import Trials
from verifier.judge.session import Values
from verifier.layout import leaf_names
from verifier.report import Trial
from verifier.timing.blocks import Side
from verifier.timing.call import Call
from verifier.timing.pairs import Pair

MOST = 4 * FLIPPED  # share of an output's elements that decisions may explain
DECIDED = 1e-4  # share of an input's elements that rounding may decide differently if the task writes to it, because there are many timed calls
KEPT = 8  # number of passed trials kept in the report


@dataclass
class TimedOutputs:
    trials: Trials
    has_rival: bool
    failed: list[Trial] = field(default_factory=list)  # the last failed trial
    checked: list[Trial] = field(default_factory=list)
    rival_off: str = ""  # how the rival's outputs differ from eager's, which makes it useless for comparison
    _off: dict[int, list[int]] = field(default_factory=dict)  # for the program and the rival: elements of each output that have been off so far
    _pending: dict[tuple[int, int], dict[int, Call]] = field(default_factory=dict)  # by number and pair; then by side: program, eager, rival

    def of(self, pairs: list[Pair]) -> Callable[[int, Side, Call], None]:
        """Returns a function that takes a side's call for a numbered input."""
        role = {id(side): (index, which) for index, pair in enumerate(pairs) for which, side in enumerate((pair.program, pair.baselines[0]))}
        role |= {id(side): (index, 2) for index, pair in enumerate(pairs) for side in pair.baselines if side.name == "rival"}
        whole = 3 if self.has_rival else 2

        def check(number: int, side: Side, call: Call) -> None:
            if id(side) not in role:
                return
            index, which = role[id(side)]
            calls = self._pending.setdefault((number, index), {})
            calls[which] = call
            if len(calls) == whole:
                del self._pending[number, index]
                self._compare(number, calls)

        return check

    def _compare(self, number: int, calls: dict[int, Call]) -> None:
        if self.has_rival and not self.rival_off:
            rival = self._trial(number, calls[2], calls[1], whose=2)
            self.rival_off = "" if rival.ok else f"{rival.name}: {rival.detail or 'the output is off'}"
        trial = self._trial(number, calls[0], calls[1])
        if not trial.ok:
            self.failed = [trial]
        elif len(self.checked) < KEPT:
            self.checked.append(trial)

    def _decided(self, whose: int, number: int, got: Call, outputs: list[torch.Tensor], limits: list[float]) -> list[float]:
        """Returns, for each output, the share of elements that rounding may have decided differently in this call; empty if rounding never does so,
        or if it would have done so too often in the calls so far."""
        decisions = self.trials.expectations.decisions
        if len(decisions) != len(outputs):
            return []
        off_so_far = self._off.setdefault(whose, [0] * len(outputs))
        shares = []
        for index, (value, expected, limit, found) in enumerate(zip(got.outputs, outputs, limits, decisions, strict=True)):
            count = off(value, expected, limit)
            off_so_far[index] += count
            allowed = found.allowed() if found is not None and off_so_far[index] <= found.allowed(number + 1) else 0
            shares.append(min(allowed / max(value.numel() * (2 if value.is_complex() else 1), 1), MOST))
        return shares

    def _trial(self, number: int, got: Call, expected: Call, whose: int = 0) -> Trial:
        form = Values(expected.tree, expected.specs)
        name, outputs = f"timed call {number + 1}", expected.outputs
        trial = compare_outputs(name, 0, got, form, outputs, outputs, *self.trials.expectations.timed_bounds())
        if not trial.ok and trial.bound is not None:
            bounds = self.trials.expectations.timed_bounds(appeal=True)
            trial = compare_outputs(name, 0, got, form, outputs, outputs, *bounds)
            if not trial.ok and trial.bound is not None and (shares := self._decided(whose, number, got, outputs, bounds[0])):
                decided = compare_outputs(name, 0, got, form, outputs, outputs, bounds[0], list(map(max, shares, bounds[1])), bounds[2])
                trial = decided if decided.ok else trial
        changed = [i for i, (ours, theirs) in enumerate(zip(got.inputs_intact, expected.inputs_intact, strict=True)) if theirs and not ours]
        left = [i for i, (ours, theirs) in enumerate(zip(got.inputs_intact, expected.inputs_intact, strict=True)) if ours and not theirs]
        said = ""
        if changed or left:
            said = f"the program changes its input {changed[0]}" if changed else f"the program leaves its input {left[0]}, which the task changes"
        said = said or shared_off(leaf_names(form.tree), got.shared, expected.shared) or self._written(got, expected)
        if trial.ok and said:
            trial = trial.model_copy(update={"ok": False, "detail": said})
        return trial.model_copy(update={"norm": NORM + ", against eager"})

    def _written(self, got: Call, expected: Call) -> str:
        """Describes how the inputs that the task changes differ between the two sides. Returns an empty string if they do not."""
        if not expected.after.keys() & got.after.keys():
            return ""
        ours = {index: got.after[index] for index in expected.after if index in got.after}
        theirs = {index: expected.after[index] for index in ours}
        said = ""
        for appeal in (False, True):
            limits, shares, _ = self.trials.expectations.timed_bounds(appeal)
            said = writes_off(ours, theirs, limits, max([DECIDED, *shares]))
            if not said:
                break
        return said
