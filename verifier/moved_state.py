"""The state that a program has after its timed calls, such as running averages, against eager's."""

from __future__ import annotations

import torch

from verifier.correctness import ULPS, epsilon, judge
from verifier.layout import read_specs
from verifier.noise import NOISE_ROOM
from verifier.pool import Party
from verifier.session import fetch
from verifier.trials import Trials

STATE_OFF = 0.01  # two sound programs' rounding differs by far less over all calls, a skipped update by far more


def state_off(program: Party, eager: Party, trials: Trials) -> str:
    """Empty, or how the state that the program has after all calls differs from eager's, which saw the same inputs: a program that knows timed calls
    from checked ones could leave it alone."""
    names = trials.reference.mutated
    if not names or trials.seeded or trials.stochastic:
        return ""
    limit = trials.limits.call
    states = []
    for party in (program, eager):
        specs = party.ask("state", {"names": names}, limit).message.get("specs")
        if specs is None:
            return f"the state dict has no {names[0]!r}, which the task changes"
        states.append(fetch(party, "state", read_specs(specs), "held", limit))
    for index, (name, got, expected) in enumerate(zip(names, *states, strict=True)):
        if got.shape != expected.shape:
            return f"{name} has shape {list(got.shape)} instead of {list(expected.shape)}"
        noise = index in trials.expectations.noisy_state  # of two sound programs it has another sign and another size
        judgement = judge(got, expected, NOISE_ROOM if noise else state_limit(expected.dtype))
        if not judgement.ok:
            return f"{name} was not moved on as the task does: {judgement.detail}"
    return ""


def state_limit(dtype: torch.dtype) -> float:
    """Running averages in 16 bits stand still within a few units of their last place, each program's in other places; an update that was left out
    shows by half of the value and more."""
    return max(STATE_OFF, ULPS * epsilon(dtype))
