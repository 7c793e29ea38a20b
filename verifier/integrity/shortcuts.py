"""Detects programs that are fast only because some things never vary while they are timed: the weights from the constructor, the distribution of the
inputs (`verifier.integrity.as_timed`), and inputs whose elements are all equal.

A gate that starts at zero, a matrix that starts as the identity, or a mask that is all true allows a program that tests for it to skip work. Such a
program is correct for any values, but its measured time applies only to a special case. Therefore, after the timed calls, the same process makes
further calls in the same form, first with other weights and then with other inputs. Their outputs are compared in the same way as those of timed
calls. If they take longer than the timed calls, the object is constructed again with the weights and inputs of the timed calls. It is then called as
often as it needs to become equally fast, because a new object may be slow for other reasons.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import torch

from verifier.correctness.inputs import domains
from verifier.correctness.trial_plan import other_weights
from verifier.float8 import steps, wide
from verifier.integrity.as_timed import AsTimed
from verifier.integrity.further_calls import FEW, Changed, Pace, with_inputs
from verifier.judge.memory import large
from verifier.judge.session import ReferenceSession, Values
from verifier.timing.blocks import median_ms
from verifier.timing.outside import low

SLOWER = 1.5  # multiple of the timed call's time, in addition to PyTorch's own slowdown under the same change
ALIKE = 1.2
LEAST_NS = 20_000  # per call; a smaller difference may be noise
EAGER_CALLS, EAGER_ROUNDS = 5, 3
DISTRIBUTION = "heavy-tailed"


@dataclass
class Shortcuts(AsTimed):
    """Searches for shortcuts. Requires exclusive use of the device."""

    said: str = ""  # the reason why the timed calls are a special case

    def look(self) -> None:
        """Sets `wrong` or `said`. Afterwards, both sides are in their constructed state. Raises `Ended` if the program fails under a change that it
        handled in its trials; otherwise, failing here would be a way to evade this check."""
        if large(self.trials.input_bytes):
            return
        self.try_as_timed()
        for find in (self._weights, self._inputs):
            changed = find() if not self.wrong and not self.said else None
            if changed is not None:
                self._made(partial(self._tried, changed), changed.what)
        self._back()

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
            if not self._bears(with_inputs(own, drawn)):
                continue
            names = ", ".join(map(str, same))
            advice = "give the task inputs that vary, or drop the test"
            return Changed(f"other values in input {names}, whose elements are all equal,", advice, partial(self._mixed, drawn))
        return None

    def _mixed(self, drawn: dict[int, torch.Tensor], number: int) -> tuple[Values, int]:
        values, seed = self._draw(number)
        return with_inputs(values, drawn), seed

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
            self._accuse(
                f"constructed again, a call takes {own.quickest / timed:.1f} times as long as when it was timed ({_ms(own.quickest)} instead of "
                f"{_ms(timed)} ms), a time that no user would see",
                own,
            )
            return
        self._construct(changed)
        found = self._pace(changed.draw, own.turns + FEW, ALIKE * own.quickest)
        if _slower(found.quickest, own.quickest, ratio):
            times = f"{_ms(found.quickest)} instead of {_ms(own.quickest)} ms; PyTorch: {ratio / SLOWER:.1f} times"
            self._accuse(
                f"with {changed.what} a call takes {found.quickest / own.quickest:.1f} times as long as in the timed calls ({times}): "
                f"the program skips work in the timed calls; {changed.advice}",
                found,
                own,
            )

    def _accuse(self, said: str, *paces: Pace) -> None:
        """Records what the paces show. Where other work took the processors in every call, they show nothing about the program."""
        calm = all(pace.calm for pace in paces)
        self.said = (
            said if calm else "this host is busy: other work took the processors in every call that could show whether the timed calls are special"
        )

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


def quickest_eager(reference: ReferenceSession, values: Values) -> float:
    """Returns the time in seconds of the fastest of a few calls of the task, including the exchange. The state is unchanged."""
    taken = []
    for _ in range(EAGER_CALLS):
        begin = time.monotonic()
        reference.eager(values, 1)
        taken.append(time.monotonic() - begin)
        reference.rollback()
    return min(taken)


def _slower(one: float, other: float, times: float) -> bool:
    return one > times * other and one - other > LEAST_NS


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3f}"


def _uniform(tensor: torch.Tensor) -> bool:
    """Returns whether all elements are equal."""
    tensor = wide(tensor)
    return tensor.numel() > 0 and not tensor.is_complex() and bool((tensor == tensor.flatten()[0]).all())
