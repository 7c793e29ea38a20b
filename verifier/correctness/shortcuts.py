"""Programs that are quick only with the weights that the constructor makes.

The program is timed with those weights. A gate that begins at zero, or a bias of zeros, lets a program that tests for them leave work out: it is
right with any weights, and its time is that of a special case. So a few calls with other weights are compared with a few with the constructor's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verifier.correctness.expectation import SHORT
from verifier.correctness.trial_plan import Weights, constant, other_weights
from verifier.judge.memory import large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import ReferenceSession, Values
from verifier.timing.call import Call

if TYPE_CHECKING:
    from verifier.correctness.trials import Subject, Trials

CALLS, SLOW_CALLS = 5, 2
SLOW_NS = 20_000_000  # per call
SLOWER = 2.0  # times as long with other weights, beyond what PyTorch's own time depends on them
ALIKE = 1.3  # times as long: no further round is needed
LEAST_NS = 30_000  # per call: a smaller difference may be noise
ROUNDS = 3  # whose shortest calls are compared, as the host may be busy


def quickest(call: Callable[[], Call]) -> int:
    """Returns the shortest of a few calls in nanoseconds."""
    first = call().inner
    return min([first, *(call().inner for _ in range((CALLS if first < SLOW_NS else SLOW_CALLS) - 1))])


def quickest_eager(reference: ReferenceSession, values: Values) -> float:
    """Returns the shortest of a few calls of the task in seconds, the exchange included. The state stays."""
    taken = []
    for _ in range(CALLS):
        begin = time.monotonic()
        reference.eager(values, 1)
        taken.append(time.monotonic() - begin)
        reference.rollback()
    return min(taken)


@dataclass
class Shortcut:
    """Times of the rounds so far: with other weights, and with the constructor's."""

    rounds: list[tuple[int, int]] = field(default_factory=list)

    def add(self, other: int, own: int) -> None:
        self.rounds.append((other, own))

    @property
    def shortest(self) -> tuple[int, int]:
        """The shortest calls of all rounds: with other weights, and with the constructor's."""
        return min(other for other, _ in self.rounds), min(own for _, own in self.rounds)

    @property
    def shows(self) -> bool:
        if not self.rounds:
            return False
        other, own = self.shortest
        return other > SLOWER * own and other - own > LEAST_NS

    @property
    def decided(self) -> bool:
        if not self.rounds:
            return False
        other, own = self.shortest
        return len(self.rounds) >= ROUNDS or other < ALIKE * own or other - own < LEAST_NS

    def said(self, eager: float) -> str:
        """Empty, or what is wrong with the time. `eager`: how many times as long PyTorch takes with the other weights."""
        if not self.shows:
            return ""
        other, own = self.shortest
        if other <= SLOWER * max(eager, 1.0) * own:
            return ""
        times = f"{other / 1e6:.3f} instead of {own / 1e6:.3f} ms; PyTorch: {eager:.1f} times"
        return (
            f"with other weights a call takes {other / own:.1f} times as long as with the constructor's ({times}): the program leaves work out "
            "for the weights that are timed; give the task weights that are not all zero or one, or drop the test"
        )


def shortcut(trials: Trials, subject: Subject) -> str:
    """Empty, or how the program is quick only with the weights that the constructor makes. Afterwards both sides are as constructed."""
    reference, constructions = trials.reference, trials.constructions
    if large(trials.input_bytes) or not any(constant(tensor) for tensor in trials.original):
        return ""
    values, seed, found = trials.first_inputs, trials.draws.getrandbits(32), Shortcut()
    seeded = constructions.binding.how == "seeded"
    weights: Weights = [] if seeded else other_weights(reference.state, trials.original, seed)

    def program() -> Call:
        assert subject.caller is not None
        return subject.caller.call(values, 1, flush=False)

    def back() -> None:
        if seeded:
            constructions.restore(subject.runner)
        trials.reconstruct(subject)

    try:
        while not found.decided:
            own = quickest(program)
            if seeded:
                constructions.anew(subject.runner, seed)
            else:
                trials.reconstruct(subject, weights=weights)
            found.add(quickest(program), own)
            back()
        return found.said(_eager(reference, values, weights)) if found.shows else ""
    except PartyFailure as failure:
        if failure.kind != "raised" or failure.error_class == SHORT:
            raise
        back()
        return ""


def _eager(reference: ReferenceSession, values: Values, weights: Weights) -> float:
    """Returns how many times as long PyTorch takes with other weights; 1 for sides that are only constructed."""
    if not weights:
        return 1.0
    reference.take_state(weights)
    other = quickest_eager(reference, values)
    reference.take_state(reference.state_tensors)
    return other / quickest_eager(reference, values)
