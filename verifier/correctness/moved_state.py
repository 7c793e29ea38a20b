"""Compares a program's state after its timed calls (for example, its running averages) with eager's state."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from verifier.correctness import bounds
from verifier.correctness.bounds import ULPS, Judgement, bound, chaotic_error, deviation, epsilon, judge, root_mean_square, same_values, tolerated
from verifier.correctness.examining import ours
from verifier.correctness.expectation import continued
from verifier.correctness.noise import DECIDED, MOST_DECIDED, NOISE_ROOM
from verifier.correctness.trials import Trials
from verifier.correctness.wrong_parts import wrong_part
from verifier.float8 import continuous
from verifier.judge.asking import Party
from verifier.judge.memory import large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import fetch
from verifier.layout import read_specs
from verifier.report import MOST_WRONG, WrongTensor

# Over all calls, rounding accounts for a difference of less than `STATE_OFF` between two sound programs. If updates are skipped after an average has
# settled, the only difference is the batch noise: a thousandth for thousands of elements. Larger rounding differences are measured if possible, and
# are otherwise tolerated.
STATE_OFF, GRANTED = 1e-4, 1e-2

# A difference is also compared with what the calls have changed at all, because an average may move by a millionth in each of them. Rounding may
# account for `MOVED` of that, if calls have moved the entry by more than `STEPS` units in the last place, or for `ROUNDINGS` times what it accounts
# for in eager and plain arithmetic, over fewer calls.
MOVED, STEPS, ROUNDINGS = 0.25, 32.0, 8.0

STATE_NORM = "max |a-b| / (|b| + rms(b)), against eager"

LATE_BYTES = 16 << 20  # maximum size of a buffer that is read although the first calls did not change it
REPLAYED = 60  # number of calls after which an average with the usual momentum of 0.1 has forgotten its initial value


@dataclass
class Drift:
    """How far apart two sound programs can be in one state entry after many calls."""

    limit: float
    tolerated: float  # share of elements that may have larger errors
    apart: float  # root mean square error of eager or plain arithmetic


@dataclass
class StateOff:
    """How a program's state is off: a sentence about the first entry (empty if none is off), and every entry that is. If none is, `nearest` is the
    entry nearest to its bound, with its error and that bound."""

    detail: str = ""
    nearest: tuple[str, float, float] | None = None
    compared: int = 0
    wrong: list[WrongTensor] = field(default_factory=list)


def state_off(program: Party, eager: Party, trials: Trials) -> StateOff:
    """Describes how the program's state after all calls differs from the state of eager, which processed the same inputs. Without this check, a
    program that can distinguish timed calls from checked ones could skip its updates. Entries that depend on random numbers are included, because
    both sides have made the same calls with the same seeds."""
    reference = trials.reference
    names = [*reference.mutated, *moved_late(eager, trials)]
    if not names:
        return StateOff()
    patience = trials.limits.call
    states = []
    for party, theirs in ((program, trials.constructions.binding.of(names)), (eager, names)):
        answer = party.ask("state", {"names": theirs}, patience).message
        if answer.get("specs") is None:
            return StateOff(f"the program has no parameter or buffer {ours(answer.get('missing'), names, theirs)!r}, which the task changes")
        states.append(fetch(party, "state", read_specs(answer["specs"]), "held", patience))
    drifted: list[Drift] | None = None
    original = {entry.name: tensor for entry, tensor in zip(reference.state, trials.original, strict=True)}
    off = StateOff(compared=len(names))
    for index, (name, got, expected) in enumerate(zip(names, *states, strict=True)):
        if got.shape != expected.shape:
            return StateOff(
                off.detail or f"{name} has shape {list(got.shape)} instead of {list(expected.shape)}", compared=off.compared, wrong=off.wrong
            )
        noise = index in trials.expectations.noisy_state  # sign and magnitude vary between sound programs
        limit = NOISE_ROOM if noise else state_limit(expected.dtype)
        judgement = judge(got, expected, limit)
        if judgement.ok and not noise and _stood_still(got, expected, original.get(name)):
            drifted = drifts(trials) if drifted is None else drifted
            judgement = _judge_moves(got, expected, original[name], drifted[index].apart if index < len(drifted) else None)
        elif not judgement.ok:
            drifted = drifts(trials) if drifted is None else drifted
            granted = NOISE_ROOM if noise else state_limit(expected.dtype, GRANTED)
            measured = index < len(drifted)
            judgement = judge_drifted(got, expected, limit, drifted[index], noise) if measured else judge(got, expected, granted)
        if judgement.ok and judgement.error is not None and judgement.bound and not off.detail:
            near = (name, judgement.error, judgement.bound)
            off.nearest = max(off.nearest or near, near, key=lambda entry: entry[1] / entry[2])
        if not judgement.ok:
            off.detail = off.detail or f"{name} was not updated as the task does: {judgement.detail}{_measured(judgement, got, expected)}"
            off.nearest = None
            off.wrong += [part] if (part := wrong_part(name, got, expected, limit, judgement=judgement)) is not None else []
    off.wrong = off.wrong[:MOST_WRONG]
    return off


def _stood_still(got: torch.Tensor, expected: torch.Tensor, original: torch.Tensor | None) -> bool:
    """Returns whether an entry is further from eager's than a part of the way that eager's has moved."""
    if original is None or got.is_complex() or not continuous(expected) or original.shape != expected.shape or not expected.numel():
        return False
    moved = root_mean_square(expected.double() - original.double())
    apart = root_mean_square(got.double() - expected.double())
    return moved > STEPS * epsilon(expected.dtype) * root_mean_square(expected) and apart > MOVED * moved


def _judge_moves(got: torch.Tensor, expected: torch.Tensor, original: torch.Tensor, rounding: float | None) -> Judgement:
    """Judges such an entry. `rounding` is how far eager and plain arithmetic are from fp64 after many calls, as a root mean square; null if that is
    not known, which counts in the program's favour."""
    moved = root_mean_square(expected.double() - original.double())
    apart = root_mean_square(got.double() - expected.double())
    if rounding is None or apart <= ROUNDINGS * rounding:
        return Judgement(True)
    return Judgement(False, apart / moved, MOVED, f"the calls move it by {moved:.3g}, and it is off by {apart:.3g} (root mean squares)")


def _measured(judgement: Judgement, got: torch.Tensor, expected: torch.Tensor) -> str:
    """Returns the error and the bound that applied, with the element that is off most. Without them, rounding and a skipped update look alike."""
    if judgement.error is None or judgement.bound is None or not got.numel():
        return ""
    a, b = got.detach().flatten(), expected.detach().flatten()
    worst = int(bounds.relative(a, b, root_mean_square(b)).argmax())
    place = list(bounds.position(worst, tuple(expected.shape)))
    return (
        f"; most at {place}: {float(a[worst]):.9g} instead of {float(b[worst]):.9g}; error {judgement.error:.3g}, bound {judgement.bound:.3g} "
        "(max |a-b| / (|b| + rms(b)))"
    )


def moved_late(eager: Party, trials: Trials) -> list[str]:
    """Returns the buffers that eager's calls have changed although the first trial's did not, such as an average that only every hundredth call
    updates."""
    entries = list(zip(trials.reference.state, trials.original, strict=True))
    own = [(entry.name, tensor) for entry, tensor in entries if not entry.parameter and entry.alias is None and tensor.nbytes <= LATE_BYTES]
    own = [(name, tensor) for name, tensor in own if name not in trials.reference.mutated]
    if not own:
        return []
    names = [name for name, _ in own]
    specs = eager.ask("state", {"names": names}, trials.limits.call).message.get("specs")
    if specs is None:  # forward has removed a buffer
        return []
    now = fetch(eager, "state", read_specs(specs), "held", trials.limits.call)
    return [name for (name, before), after in zip(own, now, strict=True) if before.shape != after.shape or not same_values(before, after)]


def state_limit(dtype: torch.dtype, off: float = STATE_OFF) -> float:
    """Returns the limit for a state entry. In each program, 16-bit running averages settle at a different value, within a few units in the last
    place. A skipped update shows up as an error of at least half the value."""
    return max(off, ULPS * epsilon(dtype))


def judge_drifted(got: torch.Tensor, expected: torch.Tensor, limit: float, drift: Drift, noise: bool) -> Judgement:
    judgement = judge(got, expected, max(limit, min(drift.limit, NOISE_ROOM)), drift.tolerated)
    if noise and not judgement.ok and float((got.double() - expected.double()).abs().max()) <= NOISE_ROOM * drift.apart:
        return Judgement(True)  # eager's own noise may happen to cancel out
    return judgement


def drifts(trials: Trials) -> list[Drift]:
    """Measures the drift of every entry over calls with the task's inputs, in eager, in fp64 and in plain arithmetic. Each run continues from its own
    state. The effect of a rounding decision stays in an average for dozens of calls, so it is more visible than after the first trials. The drift is
    measured only if a state is off. The result is empty if fp64 does not run or takes up gigabytes."""
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
    begin = reference.clock()
    for _ in range(REPLAYED):
        if reference.clock() - begin > trials.limits.oracle / 4:
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
    room = min(2 * tolerated(share, flipped, own.numel()), 0.5)  # the program and eager make their decisions independently
    if own.is_complex() or not continuous(own) or not own.numel():
        return Drift(0.0, room, 0.0)
    apart = max(root_mean_square(own.double() - exact), root_mean_square(plain - exact))
    limit = bound(error, [rough], own.dtype, trials.reference.precision)
    if min(error, rough) > chaotic_error(own.dtype):  # it follows decisions, whose effects vary from run to run
        limit = max(limit, DECIDED * rough)
    return Drift(limit + error, room, apart)
