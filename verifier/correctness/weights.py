"""Passes the task's weights to a program: by the task's own names, by matching equal values, or not at all.

A program accepts arbitrary weights if its state dict has the task's entries, or if it translates the task's state dict in a `load_state_dict` hook.
Entries that such a hook only renames are found by their values after the load, so that state and gradients can be compared.
Otherwise, both sides are constructed with the same seed, and entries with the same values are treated as the same weights. If any entry has no match,
both sides are only constructed, with several seeds. In that case, the constant values of initialisers are randomised (`verifier.parties.varying`),
which exposes everything that a zero gate would hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.correctness.fingerprint import Fingerprint, fingerprint
from verifier.correctness.trial_plan import other_weights
from verifier.float8 import steps
from verifier.judge.asking import Party
from verifier.judge.memory import EASE
from verifier.judge.session import ReferenceSession, StateEntry, fetch, give, release
from verifier.layout import Spec, place, read_specs
from verifier.own_types import chooses_types
from verifier.report import WeightsFrom

DIFFER = "weights differ: use the task's names or a load hook"


@dataclass
class Binding:
    """Maps entries of the task's state dict to the program's entries."""

    how: WeightsFrom = "loaded"
    names: dict[str, str] = field(default_factory=dict)  # program names by task name; empty if both are the same

    def of(self, names: Sequence[str]) -> list[str]:
        """Returns the program's names, or the task's own names if no correspondence is known."""
        return [self.names.get(name, name) for name in names]

    def backward(self, wanted: dict[str, Any] | None) -> dict[str, Any] | None:
        """Returns a call's gradient arguments under the program's names."""
        return None if wanted is None else {**wanted, "sources": self.of(wanted["sources"]), "called": wanted["sources"]}

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name not in self.names] if self.how != "loaded" else []


def own_entries(runner: Party, limit: float, held: bool = False) -> tuple[list[str], list[torch.Tensor]]:
    """Reads the names and values in a program's state dict or, with `held`, of the parameters and buffers that it has. These are merely what the
    program claims, and they only determine which trials are run. If the claim is wrong, the program fails those trials."""
    answer = runner.ask("entries", {"held": held}, limit).message
    specs = read_specs(answer.get("specs", []))
    names = [str(name) for name in answer.get("names", [])]
    return (names, fetch(runner, "entries", specs, "held", limit)) if len(names) == len(specs) else ([], [])


def matched(entries: Sequence[StateEntry], tensors: Sequence[torch.Tensor], names: Sequence[str], theirs: Sequence[torch.Tensor]) -> dict[str, str]:
    """Returns the program's name for each of the task's entries that equals a program entry bit for bit. The match is one-to-one: entries with the
    task's name are matched first, then the others in order. Weights that are tied in the task may be tied in the program."""
    prints = [fingerprint(tensor) for tensor in theirs]
    known = dict(zip(names, prints, strict=True))
    wanted = {entry.name: fingerprint(tensor) for entry, tensor in zip(entries, tensors, strict=True)}
    found = {name: name for name, print_ in wanted.items() if known.get(name) == print_}
    free: dict[Fingerprint, list[str]] = {}
    for name, print_ in known.items():
        if name not in found:
            free.setdefault(print_, []).append(name)
    for entry in entries:
        if entry.name in found:
            continue
        waiting = free.get(wanted[entry.name], [])
        if waiting:
            found[entry.name] = waiting.pop(0)
        elif entry.alias in found:
            found[entry.name] = found[entry.alias]
    return found


def by_shape(entries: Sequence[StateEntry], found: dict[str, str], names: Sequence[str], specs: Sequence[Spec]) -> dict[str, str]:
    """Extends `found`. Each entry without an equal counterpart is matched to the next program entry of the same shape and type; its gradients and
    state are then compared with that entry."""
    whole = dict(found)
    for entry in entries:
        if entry.name in whole:
            continue
        taken = set(whole.values())
        same = (
            name
            for name, spec in zip(names, specs, strict=True)
            if name not in taken and (spec.shape, spec.dtype) == (entry.spec.shape, entry.spec.dtype)
        )
        name = next(same, None)
        if name is not None:
            whole[entry.name] = name
    return whole


class Constructions:
    """Constructs `ModelNew` in a runner. Uses the weights that a trial requires if the binding allows it."""

    def __init__(self, reference: ReferenceSession, seed: int):
        self.reference = reference
        self.seed = seed  # seed that determines the weights of both sides, unless other weights are given
        self.binding = Binding()
        self.drawn = seed  # seed of the most recent construction with random weights

    def construct(self, runner: Party, state: list[torch.Tensor] | None, seed: int | None = None, vary: int | None = None) -> str:
        """Constructs a fresh `ModelNew`. Returns the reason why the state dict was rejected, or an empty string. A null `state` keeps the
        constructor's values.

        The source's variables are restored only if the task changes its own variables. Otherwise, it is the program's fault if one object affects the
        next."""
        reference, binding = self.reference, self.binding
        entries = [(entry.name, entry.spec) for entry in reference.state]
        if state is not None and binding.how == "seeded":
            state = None
        names = [name for name, _ in entries] if binding.how == "loaded" else binding.of([name for name, _ in entries])
        message: dict[str, Any] = {
            "need": EASE * place([spec for _, spec in entries])[1],
            "seed": self.seed if seed is None else seed,
            "vary": vary,
            "own_types": chooses_types(reference.source),
            "init": {"tree": reference.init.tree, **give(runner, "init", reference.init.tensors, reference.init.specs)},
            "names": names,
            "partial": binding.how == "matched",
            "afresh": any(not name.startswith("self.") for name in reference.remembers),
            "state": give(runner, "state", state, [spec for _, spec in entries]) if state is not None else None,
        }
        answer = runner.ask("construct", message, reference.limits.load)
        if reference.pool.device.kind == "cuda":  # on the CPU, the program is constructed again for observation
            release(runner, "state")
        return answer.text("refused")

    def match(self, runner: Party, original: list[torch.Tensor]) -> None:
        """Finds a binding after a load was rejected: one based on equal values under one seed, or else none."""
        limit, state = self.reference.limits.load, self.reference.state
        self.construct(runner, None)
        names, values = own_entries(runner, limit)
        found = matched(state, original, names, values)
        self.binding = Binding("matched", found)
        if len(found) < len(state) or self.construct(runner, original):
            self.seeded(runner)

    def renamed(self, runner: Party, original: list[torch.Tensor], wanted: Sequence[str]) -> bool:
        """Finds the program's names for `wanted` entries after an accepted load, because a load hook may rename them. They are recognised by random
        values. Returns whether the program must be constructed again."""
        limit, state = self.reference.limits.load, self.reference.state
        lacking = set(wanted).difference(runner.ask("names", {}, limit).message.get("names", []))
        if not lacking:
            return False
        values = other_weights(self.reference, original, self.seed)
        self.construct(runner, values)
        found = matched(state, values, *own_entries(runner, limit, held=True))
        self.binding = Binding("loaded", {name: own for name, own in found.items() if name in lacking})
        return True

    def seeded(self, runner: Party) -> None:
        """Switches to constructing both sides without loading any weights. The correspondence is determined from a construction in which no two
        weights are equal, and then from shapes. State and gradients are still compared."""
        theirs = self.reference.redraw(self.seed, vary=self.seed)
        self.binding = Binding("seeded")
        self.construct(runner, None, vary=self.seed)
        names, values = own_entries(runner, self.reference.limits.load)
        found = matched(self.reference.state, theirs, names, values)
        self.binding = Binding("seeded", by_shape(self.reference.state, found, names, [Spec.of(value) for value in values]))
        self.restore(runner)

    def anew(self, runner: Party, seed: int) -> str:
        """Constructs both sides with another seed and with all weights randomised. Returns a weight that has not changed, in which case nothing is
        known about other weights. Returns an empty string if there is none."""
        self.drawn = seed
        before = self.reference.redraw(seed ^ 1, vary=seed ^ 1)
        after = self.reference.redraw(seed, vary=seed)
        self.construct(runner, None, seed, seed)
        for entry, one, two in zip(self.reference.state, before, after, strict=True):
            if entry.parameter and entry.spec.inexact and entry.spec.numel and torch.equal(steps(one), steps(two)):
                return entry.name
        return ""

    def restore(self, runner: Party) -> None:
        """Restores both sides to their state after the first construction."""
        self.reference.redraw(self.seed)
        self.construct(runner, None)
