"""Tests whether own functions contribute to the outputs. Each function is made to return immediately, and the call must then give a different result.

Every patched call has inputs that the process has not seen, so freed memory cannot contain a correct result. It is followed by an unpatched call with
the same inputs. Weights are redrawn if the program loads them, because a zero bias would hide the kernel that adds it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from verifier.correctness.bounds import same_values
from verifier.correctness.calling import Subject
from verifier.correctness.comparison import compare_outputs
from verifier.correctness.trial_plan import PLAIN, other_weights
from verifier.correctness.trials import Trials
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import Values, fetch
from verifier.layout import read_specs
from verifier.timing.call import Call

DISTRIBUTIONS = ("", "heavy-tailed", "negative", "large")  # input distributions for which a function may be needed; "" means the task's own
TRIED = 24  # maximum number of patched programs
SMALL = 0.04  # share of a group of functions below which the group is not split
PATIENCE, PATIENCE_SECONDS = 20.0, 2.0  # time limits, relative and absolute; if a call without a function exceeds them, that function is needed


class Gone(Exception):
    """Raised when the process did not survive a patched call, or no longer answers."""


@dataclass
class Skipping:
    """Searches for functions that the outputs do not need. `subject` returns the process, or a fresh one if the last one has not survived. While
    `patch` is open, the functions return immediately, in that process or in another process that `patch` yields. `patch` raises `Gone` if the test is
    impossible."""

    trials: Trials
    subject: Callable[[], Subject]
    patch: Callable[[list[str]], contextlib.AbstractContextManager[Subject]]
    rng: random.Random
    call_ms: float
    needless: list[str] = field(default_factory=list)
    tried: int = 0
    _weights: list[torch.Tensor] | None = None
    _moves: list[str] = field(default_factory=list)  # the program's names for state entries that a call changes
    _ready: dict[int, Subject] = field(default_factory=dict)  # subjects that have been constructed

    def look(self, shares: dict[str, float]) -> list[str]:
        """Returns the functions that do not affect the outputs, with their shares of the time."""
        trials = self.trials
        state, seeded = trials.reference.state, trials.constructions.binding.how == "seeded"
        if state and not seeded and any(entry.spec.inexact for entry in state):
            self._weights = other_weights(trials.reference, trials.original, self.rng.getrandbits(32), *(trials.borne or ()))
        alone = sorted((name for name, share in shares.items() if share >= SMALL), key=lambda name: -shares[name])
        self._moves = trials.state_names()  # a kernel that updates renamed averages is needed too
        groups = [[name] for name in alone] + [[name for name in shares if name not in alone]]
        while groups and self.tried < TRIED:
            group = groups.pop(0)
            if not group:
                continue
            self.tried += 1
            if self._does_nothing(group):
                self.needless += group
            elif len(group) > 1 and sum(shares[name] for name in group) > SMALL:
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]
        return self.needless

    def _does_nothing(self, names: list[str]) -> bool:
        told = False
        for distribution in DISTRIBUTIONS:
            values = self._draw(distribution)
            if values is None:
                continue
            try:
                same = self._same(names, values)
            except Gone:
                return False
            if same is False:
                return False
            told = told or same is True
        return told

    def _draw(self, distribution: str) -> Values | None:
        reference, seed = self.trials.reference, self.rng.getrandbits(32)
        values = reference.inputs(seed)
        return (reference.reshaped(values, distribution, PLAIN, seed) if distribution else None) or values

    def _same(self, names: list[str], values: Values) -> bool | None:
        """Returns whether a call gives the same result without these functions, or null if the unpatched program cannot handle these inputs."""
        rng = self.rng.getrandbits(32)
        patched: Call | None = None
        state: list[torch.Tensor] = []
        subject = self.subject()
        try:
            self._constructed(subject)
            with self.patch(names) as other:
                if other is not subject:
                    self._constructed(other)
                patched, state = self._call(other, values, rng)
        except PartyFailure:
            if not subject.runner.alive:
                raise Gone from None
        try:
            plain, after = self._call(self._constructed(subject), values, rng)
        except PartyFailure:
            return None
        return patched is not None and self._equal(patched, plain) and len(state) == len(after) and all(map(same_values, state, after))

    def _call(self, subject: Subject, values: Values, rng: int) -> tuple[Call, list[torch.Tensor]]:
        caller = subject.caller
        assert caller is not None
        caller.limit = min(self.trials.limits.call, PATIENCE * self.call_ms / 1e3 + PATIENCE_SECONDS)
        call = caller.call(values, rng, flush=False)
        if not self._moves:
            return call, []
        answer = subject.runner.ask("state", {"names": self._moves}, self.trials.limits.call).message
        return call, fetch(subject.runner, "state", read_specs(answer.get("specs") or []), "held")

    def _constructed(self, subject: Subject) -> Subject:
        """Constructs the program with the test's weights: before each call if calls change the state, and otherwise only once. After a single
        construction, also makes one call, because a program may derive data from its weights in its first call."""
        if id(subject) not in self._ready or self._moves:
            self.trials.reconstruct(subject, stay=False, weights=self._weights)
            if self.trials.first_calls.compiles and id(subject) not in self._ready:
                assert subject.caller is not None
                with self.trials.first_calls.longer(subject.caller):  # no patience, which is a multiple of a timed call, lasts for a compilation
                    self.trials.first_call(subject.caller)
                self.trials.reconstruct(subject, stay=False, weights=self._weights)
            self._ready[id(subject)] = subject
            if not self._moves:
                self._call(subject, self.trials.reference.inputs(self.rng.getrandbits(32)), 1)
        return subject

    def _equal(self, patched: Call, plain: Call) -> bool:
        if patched.inputs_intact != plain.inputs_intact or len(patched.outputs) != len(plain.outputs):
            return False
        if all(map(same_values, patched.outputs, plain.outputs)):
            return True
        form = Values(plain.tree, plain.specs)
        return compare_outputs("skipped", 0, patched, form, plain.outputs, plain.outputs, *self.trials.expectations.timed_bounds()).ok
