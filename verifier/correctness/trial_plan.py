"""The calls that a program is tried with: inputs of several distributions and shapes, other weights, fresh and old addresses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import DISTRIBUTIONS, randomise_state
from verifier.correctness.expectation import Expectations, Expected
from verifier.judge.session import ReferenceSession, StateEntry, Values

Weights = list[torch.Tensor]


@dataclass
class Step:
    """One planned call. What it needs is drawn when its turn comes, and is not kept: it may be gigabytes. `draw` gives null where the task bears no
    such inputs. `fresh`: at another address than the call before; without it, new contents lie where old ones lay."""

    name: str
    seed: int
    draw: Callable[[], Values | None]
    weights: Callable[[], Weights] | None = None
    fresh: bool = True
    known: Expected | None = None


@dataclass
class Plan:
    """Cheap and telling trials first. `first_inputs` draws those that the task was prepared with."""

    reference: ReferenceSession
    draws: random.Random
    original: Weights
    full: bool
    floating: bool  # whether an input is
    first_inputs: Callable[[], Values]

    def steps(self, expectations: Expectations) -> Iterator[Step]:
        """Decided as it goes on: later steps depend on what earlier ones have shown of the task."""
        reference = self.reference
        weighted = any(entry.spec.floating for entry in reference.state)
        yield Step("task inputs 1", self._seed(), self.first_inputs)
        yield self._task_inputs("task inputs 2", fresh=False)
        if expectations.first is not None:
            # For a task that changes its state an old input is one more call, with results of its own.
            known = None if reference.mutated or reference.remembers else expectations.first
            yield Step("the first inputs elsewhere", self._seed(), self.first_inputs, known=known)
            seed = self._seed()
            yield Step("one element changed", seed, lambda: one_element(self.first_inputs(), seed), fresh=False)
        if weighted:
            yield self._weighted("random weights")
        for variant in range(reference.variants):
            yield self._variant(variant)
        for distribution in DISTRIBUTIONS if self.floating else ():
            yield self._distribution(distribution)
        if self.full:
            for count in range(3, 6):
                yield self._task_inputs(f"task inputs {count}", self.draws.random() < 0.5)
            if weighted:
                yield self._weighted("random weights 2", "heavy-tailed")

    def _seed(self) -> int:
        return self.draws.getrandbits(32)

    def _task_inputs(self, name: str, fresh: bool) -> Step:
        seed = self._seed()
        return Step(name, seed, lambda: self.reference.inputs(seed), fresh=fresh)

    def _variant(self, number: int) -> Step:
        seed = self._seed()
        return Step(f"input variant {number + 1}", seed, lambda: self.reference.inputs(seed, number))

    def _distribution(self, name: str) -> Step:
        seed = self._seed()
        return Step(name, seed, lambda: self.reference.reshaped(self.reference.inputs(seed), name, seed), fresh=self.draws.random() < 0.5)

    def _weighted(self, name: str, distribution: str = "") -> Step:
        seed = self._seed()

        def draw() -> Values:
            values = self.reference.inputs(seed)
            return (self.reference.reshaped(values, distribution, seed) if distribution else None) or values

        return Step(name, seed, draw, lambda: other_weights(self.reference.state, self.original, seed))


def other_weights(state: list[StateEntry], original: Weights, seed: int) -> Weights:
    generator = torch.Generator(device=original[0].device).manual_seed(seed)
    by_name: dict[str, torch.Tensor] = {}
    for entry, tensor in zip(state, original, strict=True):
        if entry.alias in by_name:
            by_name[entry.name] = by_name[entry.alias]
            continue
        changed = tensor.clone()
        randomise_state(entry.name, changed, entry.parameter, generator)
        by_name[entry.name] = changed
    return list(by_name.values())


def one_element(values: Values, seed: int) -> Values | None:
    """The same inputs but for one element, far from the beginning of its tensor, which takes another element's value."""
    draws = random.Random(seed)
    candidates = [index for index, tensor in enumerate(values.tensors) if tensor.numel() > 1]
    floating = [index for index in candidates if values.tensors[index].is_floating_point()]
    if not candidates:
        return None
    chosen = max(floating or candidates, key=lambda index: values.tensors[index].numel())
    tensors = list(values.tensors)
    changed = tensors[chosen].clone(memory_format=torch.preserve_format)
    flat = changed.reshape(-1) if changed.is_contiguous() else changed.permute(_by_stride(changed)).reshape(-1)
    at = draws.randrange(flat.numel() // 2, flat.numel())
    if changed.is_floating_point():
        low, high = flat.min(), flat.max()
        flat[at] = torch.where(flat[at] - low > high - flat[at], low, high)
    else:
        other = torch.nonzero(flat != flat[at])
        if not other.numel():
            return None
        flat[at] = flat[other[draws.randrange(len(other))]].reshape(())
    tensors[chosen] = changed
    return Values(values.tree, values.specs, tensors)


def _by_stride(tensor: torch.Tensor) -> list[int]:
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda d: -strides[d])


def constant(tensor: torch.Tensor) -> bool:
    """A floating tensor whose elements are all the same: zeros, ones."""
    return tensor.is_floating_point() and tensor.numel() > 0 and bool((tensor == tensor.flatten()[0]).all())
