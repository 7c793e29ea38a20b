"""Tries the timed object itself, after its timed calls.

A program that can tell timed calls from trials could leave out in the former whatever the task's own inputs do not need. Therefore, the timed object
makes further calls in the same form, with inputs from other distributions. It must do so before it is constructed again, because it may go by its
age. Parameters that the task leaves as they are must be those that were loaded, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch

from verifier.correctness.bounds import same_values
from verifier.correctness.expectation import SHORT
from verifier.correctness.inputs import DISTRIBUTIONS, Domain, domains
from verifier.correctness.trial_plan import Weights
from verifier.integrity.further_calls import Changed, FurtherCalls, all_are_finite
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import Values, fetch
from verifier.layout import read_specs
from verifier.timing.blocks import median_ms

OTHERS, SHORT_MS = 3, 50.0  # number of distributions for the timed object; length of a call above which there is one
MOST_STATE = 64 << 20  # maximum total bytes of parameters that are compared


@dataclass
class AsTimed(FurtherCalls):
    """Tries the object, and compares its parameters with those of another one."""

    def try_as_timed(self) -> None:
        """Sets `wrong`. Raises `Ended` if the program fails."""
        self._back()
        for name, domain in self._distributions():
            self._made(partial(self._as_old, name, domain), f"inputs from another distribution ({name})")
        self._made(self._parameters, "its own weights")

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
            return all_are_finite(reference.eager(values, 1).outputs.tensors)
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
