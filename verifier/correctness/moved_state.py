"""Compares the state that a program has after its timed calls, such as running averages, with eager's."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import ULPS, Judgement, bound, deviation, epsilon, judge, root_mean_square, tolerated
from verifier.correctness.expectation import continued
from verifier.correctness.noise import MOST_DECIDED, NOISE_ROOM
from verifier.correctness.trials import Trials
from verifier.judge.asking import Party
from verifier.judge.memory import large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import fetch
from verifier.layout import read_specs

# Two sound programs' rounding differs by less over all calls. Updates that are left out once an average has settled differ by the noise of a batch
# alone: a thousandth for thousands of elements. Where rounding may differ by more, it is measured, and where it cannot be measured, it is granted.
STATE_OFF, GRANTED = 1e-4, 1e-2

REPLAYED = 60  # calls after which an average with the usual momentum of 0.1 has forgotten its initial value


@dataclass
class Drift:
    """How far apart two sound programs may be in an entry of the state after many calls."""

    limit: float
    tolerated: float  # share of elements that may be off by more
    apart: float  # root mean square error of eager or plain arithmetic


def state_off(program: Party, eager: Party, trials: Trials) -> str:
    """Says how the program's state after all calls differs from eager's, which saw the same inputs; empty if it does not. A program that can tell
    timed calls from checked ones could skip its updates. Entries that random numbers change are left out."""
    names = trials.reference.mutated
    if not names:
        return ""
    patience = trials.limits.call
    states = []
    for party, theirs in ((program, trials.state_names()), (eager, names)):
        specs = party.ask("state", {"names": theirs}, patience).message.get("specs")
        if specs is None:
            return f"the state dict has no {names[0]!r}, which the task changes"
        states.append(fetch(party, "state", read_specs(specs), "held", patience))
    drifted: list[Drift] | None = None
    for index, (name, got, expected) in enumerate(zip(names, *states, strict=True)):
        if index in trials.unsteady:
            continue
        if got.shape != expected.shape:
            return f"{name} has shape {list(got.shape)} instead of {list(expected.shape)}"
        noise = index in trials.expectations.noisy_state  # between two sound programs its sign and size vary
        limit = NOISE_ROOM if noise else state_limit(expected.dtype)
        judgement = judge(got, expected, limit)
        if not judgement.ok:
            drifted = drifts(trials) if drifted is None else drifted
            granted = NOISE_ROOM if noise else state_limit(expected.dtype, GRANTED)
            judgement = judge_drifted(got, expected, limit, drifted[index], noise) if drifted else judge(got, expected, granted)
        if not judgement.ok:
            return f"{name} was not updated as the task does: {judgement.detail}"
    return ""


def state_limit(dtype: torch.dtype, off: float = STATE_OFF) -> float:
    """Returns the limit for an entry of the state. Running averages in 16 bits settle within a few units in the last place, at different values for
    each program; a skipped update shows as half of the value or more."""
    return max(off, ULPS * epsilon(dtype))


def judge_drifted(got: torch.Tensor, expected: torch.Tensor, limit: float, drift: Drift, noise: bool) -> Judgement:
    judgement = judge(got, expected, max(limit, min(drift.limit, NOISE_ROOM)), drift.tolerated)
    if noise and not judgement.ok and float((got.double() - expected.double()).abs().max()) <= NOISE_ROOM * drift.apart:
        return Judgement(True)  # eager's own noise may happen to cancel
    return judgement


def drifts(trials: Trials) -> list[Drift]:
    """Measures the drift of every entry by calls with the task's inputs in eager, in fp64 and in plain arithmetic, each continuing from its own
    state. A decision by rounding stays in an average for dozens of calls, so more of it shows than after the first trials. Measured only where a
    state is off; empty where fp64 does not run or takes gigabytes."""
    reference = trials.reference
    if trials.expectations.no_oracle:
        return []
    try:
        found = _replayed(trials)
    except PartyFailure as failure:
        if failure.kind != "raised":
            raise
        found = []
    reference.take_state(trials.original)
    return found


def _replayed(trials: Trials) -> list[Drift]:
    reference, draws = trials.reference, trials.draws
    reference.take_state(trials.original)
    plain: list[torch.Tensor] | None = None
    exact: list[torch.Tensor] | None = None
    own: list[torch.Tensor] = []
    begin = time.monotonic()
    for _ in range(REPLAYED):
        if time.monotonic() - begin > trials.limits.oracle / 4:
            break
        values, rng = reference.inputs(draws.getrandbits(32)), draws.getrandbits(32)
        if large(values.nbytes):
            return []
        reference.exact = exact
        precise = reference.oracle(values, rng)
        reference.exact = plain
        rough = reference.oracle(values, rng, rough=draws.getrandbits(32))
        eager = reference.eager(values, rng)
        exact, plain, own = continued(precise, eager), continued(rough, eager), eager.state
        if exact is None or plain is None:
            return []
    return [_drift(*entry, trials) for entry in zip(own, exact or [], plain or [], strict=True)]


def _drift(own: torch.Tensor, exact: torch.Tensor, plain: torch.Tensor, trials: Trials) -> Drift:
    error, share = deviation(own, exact, MOST_DECIDED)
    rough, flipped = deviation(plain, exact, MOST_DECIDED)
    room = min(2 * tolerated(share, flipped, own.numel()), 0.5)  # the program and eager each decide for themselves
    if not own.is_floating_point() or not own.numel():
        return Drift(0.0, room, 0.0)
    apart = max(root_mean_square(own.double() - exact), root_mean_square(plain - exact))
    return Drift(bound(error, [rough], own.dtype, trials.reference.precision) + error, room, apart)
