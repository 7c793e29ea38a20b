"""Detects programs that are fast only because some things never vary while they are timed: the weights from the constructor, the distribution of the
inputs, and inputs whose elements are all equal.

A program that can tell timed calls from trials could leave out in the former whatever the task's own inputs do not need. Therefore, the timed object
first makes further calls in the same form, with inputs from other distributions. It must do so before it is constructed again, because it may go by
its age. Parameters that the task leaves as they are must be those that were loaded, too.

A gate that starts at zero, a matrix that starts as the identity, or a mask that is all true allows a program that tests for it to skip work. Such a
program is correct for any values, but its measured time applies only to a special case. Therefore, after the timed calls, the same process makes
further calls in the same form, first with other weights and then with other inputs. Their outputs are compared in the same way as those of timed
calls. If they take longer than the timed calls, the object is constructed again with the weights and inputs of the timed calls. It is then called as
often as it needs to become equally fast, because a new object may be slow for other reasons.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import torch

from verifier.correctness.bounds import all_finite, same_values
from verifier.correctness.comparison import compare_outputs
from verifier.correctness.examining import compared
from verifier.correctness.expectation import SHORT, Skipped
from verifier.correctness.inputs import DISTRIBUTIONS, Domain, domains
from verifier.correctness.trial_plan import Weights, other_weights
from verifier.correctness.trials import Trials
from verifier.float8 import steps, wide
from verifier.integrity.timed_process import TimedProcess
from verifier.judge.endings import Ended
from verifier.judge.memory import large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import ReferenceSession, Values, fetch
from verifier.layout import read_specs
from verifier.timing.blocks import median_ms
from verifier.timing.call import Call
from verifier.timing.outside import low
from verifier.timing.series import Form, Use, Uses, single

FEW = 2  # number of turns for a new object, because it may pack weights in the first turn
MOST_SECONDS = 3.0  # time in seconds that an object has to become as fast as the timed object
SLOWER = 1.5  # multiple of the timed call's time, in addition to PyTorch's own slowdown under the same change
ALIKE = 1.2
LEAST_NS = 20_000  # per call; a smaller difference may be noise
EAGER_CALLS, EAGER_ROUNDS = 5, 3
DISTRIBUTION = "heavy-tailed"
OTHERS, SHORT_MS = 3, 50.0  # number of distributions for the timed object; length of a call above which there is one
MOST_STATE = 64 << 20  # maximum total bytes of parameters that are compared
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
    """The turns of one object. `quickest` is the time of a call in the quickest turn, in nanoseconds. `made` lists all uses in order, with the calls
    of that turn."""

    quickest: float = float("inf")
    turns: int = 0
    made: list[tuple[Use, Call | None]] = field(default_factory=list)

    def add(self, uses: list[Use], calls: list[Call]) -> None:
        found = statistics.median(call.inner for call in [call for call in calls if not call.preempted] or calls)
        if found < self.quickest:
            self.quickest = found
            self.made = [(use, None) for use, _ in self.made]
            by_use = {id(use): call for use, call in zip([use for use in uses if use.counted], calls, strict=True)}
            self.made += [(use, by_use.get(id(use))) for use in uses]
        else:
            self.made += [(use, None) for use in uses]
        self.turns += 1


@dataclass
class Shortcuts:
    """Searches for shortcuts. `form` is the form of the timed series. Requires exclusive use of the device."""

    timed: TimedProcess
    trials: Trials
    form: Form | None
    rng: random.Random
    wrong: str = ""  # what is wrong with the outputs under a change
    said: str = ""  # the reason why the timed calls are a special case

    def look(self) -> None:
        """Sets `wrong` or `said`. Afterwards, both sides are in their constructed state. Raises `Ended` if the program fails under a change that it
        handled in its trials; otherwise, failing here would be a way to evade this check."""
        if large(self.trials.input_bytes):
            return
        self._back()
        for name, domain in self._distributions():
            self._made(partial(self._as_old, name, domain), f"inputs from another distribution ({name})")
        if not self.wrong:
            self._made(self._parameters, "its own weights")
        for find in (self._weights, self._inputs):
            changed = find() if not self.wrong and not self.said else None
            if changed is not None:
                self._made(partial(self._tried, changed), changed.what)
        self._back()

    def _made(self, work: Callable[[], None], what: str) -> None:
        """Does some of the work. Raises `Ended` if the program fails."""
        if self.wrong or self.said:
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

    # The timed object

    def _distributions(self) -> list[tuple[str, Domain]]:
        """Returns distributions that the task bears, each with the widest domain. The list is empty if outputs may depend on earlier calls in a way
        that the reference cannot repeat."""
        reference = self.trials.reference
        if reference.remembers or reference.backward is not None or not {*reference.mutated} <= {entry.name for entry in reference.state}:
            return []
        if reference.mutated and (self._seeded or self.trials.expectations.noisy_state or self.trials.expectations.noise):
            return []
        names = self.rng.sample(DISTRIBUTIONS, len(DISTRIBUTIONS))
        wanted = OTHERS if median_ms(self.timed.side) < SHORT_MS else 1
        return list(islice((found for name in names if (found := self._borne(name)) is not None), wanted))

    def _as_old(self, name: str, domain: Domain) -> None:
        """Calls the timed object with inputs from another distribution."""

        def draw(number: int) -> tuple[Values, int]:
            reference, seed = self.trials.reference, self.rng.getrandbits(32)
            return reference.reshaped(reference.inputs(seed), name, domain, seed) or reference.inputs(seed), seed

        changed = Changed(f"inputs from another distribution ({name})", "", draw, self._as_now(), strict=False)
        self.wrong = self._off(self._pace(draw, 1, 0.0), changed)

    def _as_now(self) -> Weights | None:
        """Returns the weights with what the program's calls so far have made of the entries that they change. Returns null if they change none."""
        reference, binding = self.trials.reference, self.trials.constructions.binding
        if not reference.mutated:
            return None
        names = dict(zip(binding.of(reference.mutated), reference.mutated, strict=True))
        now = {names[name]: tensor for name, tensor in self._stored(list(names)).items()}
        return [now.get(entry.name, tensor) for entry, tensor in zip(reference.state, self.trials.original, strict=True)]

    def _borne(self, name: str) -> tuple[str, Domain] | None:
        """Returns the widest domain in which the task bears a distribution, or null if it bears it in none."""
        reference, seed = self.trials.reference, self.rng.getrandbits(32)
        for domain in domains(reference.inputs(seed).tensors):
            other = reference.reshaped(reference.inputs(seed), name, domain, seed)
            if other is not None and self._bears(other):
                return name, domain
        return None

    def _bears(self, values: Values) -> bool:
        reference = self.trials.reference
        try:
            return _finite(reference.eager(values, 1).outputs.tensors)
        except PartyFailure as failure:
            if failure.kind != "raised" or failure.error_class == SHORT:
                raise
            reference.outlive()
            return False
        finally:
            reference.rollback()

    def _parameters(self) -> None:
        """Finds a parameter that the program's calls have changed although the task's do not. Constructs the object again for comparison."""
        reference, constructions = self.trials.reference, self.trials.constructions
        kept = [entry for entry in reference.state if entry.parameter and entry.name not in reference.mutated]
        if not kept or self._seeded or sum(entry.spec.nbytes for entry in kept) > MOST_STATE:
            return
        names = constructions.binding.of([entry.name for entry in kept])
        after = self._stored(names)
        self._own()
        before = self._stored(names)
        for entry, name in zip(kept, names, strict=True):
            then, now = before.get(name), after.get(name)
            if then is not None and (now is None or now.shape != then.shape or now.dtype != then.dtype or not same_values(now, then)):
                self.wrong = f"the program changes its parameter {entry.name}, which the task does not: keep what is derived from it apart"
                return

    def _stored(self, names: list[str]) -> dict[str, torch.Tensor]:
        """Reads those of the program's parameters that exist: a load hook may have put others in their place."""
        party, limit, present = self.timed.caller.party, self.trials.limits.call, list(names)
        while present:
            answer = party.ask("state", {"names": present}, limit).message
            if answer.get("specs") is not None:
                return dict(zip(present, fetch(party, "state", read_specs(answer["specs"]), "held", limit), strict=True))
            if answer.get("missing") not in present:
                break
            present.remove(answer["missing"])
        return {}

    # What may change

    def _weights(self) -> Changed | None:
        """Returns other weights, drawn from the widest range that the task could handle in the trials. Returns null if the task cannot handle any or
        has no weights."""
        trials, seed = self.trials, self.rng.getrandbits(32)
        floating = any(entry.spec.inexact and entry.spec.numel for entry in trials.reference.state)
        if not (floating or (trials.borne and trials.borne[-1])) or not (trials.borne or self._seeded):
            return None
        weights = None if self._seeded else other_weights(trials.reference, trials.original, seed, *(trials.borne or ()))
        return Changed("other weights", "give the task weights that are not all zero or one, or drop the test", self._draw, weights)

    def _inputs(self) -> Changed | None:
        """Replaces inputs whose elements are all equal with randomly drawn inputs. Returns null if there are no such inputs, or if the task accepts
        no replacement."""
        reference, seed = self.trials.reference, self.rng.getrandbits(32)
        own = reference.inputs(seed)
        same = [index for index, tensor in enumerate(own.tensors) if _uniform(tensor)]
        if not same:
            return None
        for domain in domains(own.tensors):
            other = reference.reshaped(reference.inputs(seed), DISTRIBUTION, domain, seed)
            if other is None or all(torch.equal(steps(own.tensors[index]), steps(other.tensors[index])) for index in same):
                continue
            drawn = {index: other.tensors[index] for index in same}
            if not self._bears(_with(own, drawn)):
                continue
            names = ", ".join(map(str, same))
            advice = "give the task inputs that vary, or drop the test"
            return Changed(f"other values in input {names}, whose elements are all equal,", advice, partial(self._mixed, drawn))
        return None

    def _draw(self, number: int) -> tuple[Values, int]:
        seed = self.rng.getrandbits(32)
        return self.trials.reference.inputs(seed), seed

    def _mixed(self, drawn: dict[int, torch.Tensor], number: int) -> tuple[Values, int]:
        values, seed = self._draw(number)
        return _with(values, drawn), seed

    # One change

    def _tried(self, changed: Changed) -> None:
        self._try(changed)
        self._own()

    def _try(self, changed: Changed) -> None:
        timed, quiet = median_ms(self.timed.side) * 1e6, low(self.timed.side.laps.inner)  # a busy host adds to the median
        self._construct(changed)
        found = self._pace(changed.draw, FEW, ALIKE * quiet)
        self.wrong = self._off(found, changed)
        if self.wrong or not _slower(found.quickest, quiet, ALIKE):
            return
        ratio = SLOWER * max(self._eager(changed), 1.0)
        if not _slower(found.quickest, quiet, ratio):
            return
        self._own()
        own = self._pace(self._draw, self._timed_turns, ALIKE * quiet)
        if _slower(own.quickest, timed, SLOWER):
            self.said = (
                f"constructed again, a call takes {own.quickest / timed:.1f} times as long as when it was timed ({_ms(own.quickest)} instead of "
                f"{_ms(timed)} ms), a time that no user would see"
            )
            return
        self._construct(changed)
        found = self._pace(changed.draw, own.turns + FEW, ALIKE * own.quickest)
        if _slower(found.quickest, own.quickest, ratio):
            times = f"{_ms(found.quickest)} instead of {_ms(own.quickest)} ms; PyTorch: {ratio / SLOWER:.1f} times"
            self.said = (
                f"with {changed.what} a call takes {found.quickest / own.quickest:.1f} times as long as in the timed calls ({times}): "
                f"the program skips work in the timed calls; {changed.advice}"
            )

    @property
    def _seeded(self) -> bool:
        return self.trials.constructions.binding.how == "seeded"

    @property
    def _timed_turns(self) -> int:
        return max(2 * len(self.timed.side.blocks), FEW)

    def _construct(self, changed: Changed) -> None:
        constructions, party = self.trials.constructions, self.timed.caller.party
        if changed.weights is not None:
            constructions.construct(party, changed.weights)
        elif changed.draw == self._draw and self._seeded:
            constructions.anew(party, self.rng.getrandbits(32))
        else:
            constructions.construct(party, self.trials.original)

    def _own(self) -> None:
        self.trials.constructions.construct(self.timed.caller.party, self.trials.original)

    def _back(self) -> None:
        """Also restores the task's model."""
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

    def _eager(self, changed: Changed) -> float:
        """Returns PyTorch's slowdown factor under the change, or 1 for sides that are only constructed."""
        reference, trials = self.trials.reference, self.trials
        if self._seeded and changed.draw == self._draw:
            return 1.0
        others, owns = [], []
        for _ in range(EAGER_ROUNDS):  # alternates between the two, because the host may be busy
            reference.take_state(changed.weights or trials.original)
            others.append(quickest_eager(reference, changed.draw(0)[0]))
            reference.take_state(trials.original)
            owns.append(quickest_eager(reference, self._draw(0)[0]))
        return min(others) / min(owns)

    # The outputs

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
        if call is None or not _finite(outputs):
            return ""
        trial = compare_outputs("shortcut", 0, call, run.outputs, outputs, outputs, *self.trials.expectations.timed_bounds())
        return "" if trial.ok else trial.detail or "the output is off"

    def _beside_fp64(self, values: Values, rng: int, call: Call | None, strict: bool) -> str:
        expectations, precision = self.trials.expectations, self.trials.reference.precision
        try:
            expected = expectations.expect(values, rng, strict)
        except Skipped:
            return ""
        if call is None or not _finite(expected.run.outputs.tensors):
            return ""
        trial = compared("shortcut", 0, call, expected, precision)
        if not trial.ok and trial.bound is not None and expected.in_reach(trial.error):
            expectations.appeal(expected)
            trial = compared("shortcut", 0, call, expected, precision)
        return "" if trial.ok else trial.detail or "the output is off"


def _blameless(failure: PartyFailure) -> bool:
    """Returns whether a failure says nothing about the program."""
    return failure.kind == "wanted" or failure.whose not in ("", "program") or failure.request in ("memory", "start", "role")


def quickest_eager(reference: ReferenceSession, values: Values) -> float:
    """Returns the time in seconds of the fastest of a few calls of the task, including the exchange. The state is unchanged."""
    taken = []
    for _ in range(EAGER_CALLS):
        begin = time.monotonic()
        reference.eager(values, 1)
        taken.append(time.monotonic() - begin)
        reference.rollback()
    return min(taken)


def _finite(tensors: list[torch.Tensor]) -> bool:
    return all(map(all_finite, tensors))


def _slower(one: float, other: float, times: float) -> bool:
    return one > times * other and one - other > LEAST_NS


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3f}"


def _uniform(tensor: torch.Tensor) -> bool:
    """Returns whether all elements are equal."""
    tensor = wide(tensor)
    return tensor.numel() > 0 and not tensor.is_complex() and bool((tensor == tensor.flatten()[0]).all())


def _with(values: Values, drawn: dict[int, torch.Tensor]) -> Values:
    return Values(values.tree, values.specs, [drawn.get(index, tensor) for index, tensor in enumerate(values.tensors)])
