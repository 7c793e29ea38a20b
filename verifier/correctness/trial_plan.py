"""Plans the trial calls: inputs of several distributions and shapes, other weights, fresh and old addresses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from verifier.correctness.expectation import Expectations, Expected
from verifier.correctness.inputs import DISTRIBUTIONS, Domain, changeable, domains, one_element
from verifier.correctness.not_a_number import NAME
from verifier.judge.session import ReferenceSession, StateEntry, Values
from verifier.randomising import randomised

Weights = list[torch.Tensor]
Kind = Literal["own", "distribution", "weights", "not a number", "numbers", "constructed again"]
NUMBERS: dict[str, type] = {"other numbers": float, "other flags": bool}
SMALLER = 0.75  # of a float among the arguments
AGAIN = "the first inputs, constructed again"
GIVEN_UP = 2  # failed distributions after which a domain is not tried again
PLAIN = Domain("any", "own")


@dataclass
class Way:
    """One way to draw what a step needs, if the task can handle it; the widest is tried first. `draw` returns null where there is nothing to vary."""

    draw: Callable[[], Values | None]
    weights: Callable[[], Weights] | None = None
    detail: str = ""
    domain: Domain | None = None
    wide: tuple[bool, bool] | None = None  # of `weights`: the last arguments of `other_weights`


@dataclass
class Step:
    """One planned call. Its inputs may take gigabytes, so they are drawn when its turn comes and are not kept. `fresh`: inputs lie at another address
    than before; otherwise new contents lie at old addresses. `needed`: there is no verdict without this call, however slow the task is."""

    name: str
    seed: int
    ways: list[Way]
    kind: Kind = "own"
    fresh: bool = True
    known: Expected | None = None
    needed: bool = False


@dataclass
class Plan:
    """Orders trials so that cheap and telling ones come first. `first_inputs` draws those that the task was prepared with."""

    reference: ReferenceSession
    draws: random.Random
    original: Weights
    full: bool
    first_inputs: Callable[[], Values]

    def __post_init__(self) -> None:
        self.refused: dict[Domain, int] = {}  # by domain, the distributions on which the task failed

    def steps(self, expectations: Expectations) -> Iterator[Step]:
        """Yields the steps. Later steps depend on what earlier ones have shown about the task."""
        reference = self.reference
        weighted = any(entry.spec.floating for entry in reference.state)
        yield self._own("task inputs 1", self.first_inputs, needed=True)
        yield self._task_inputs("task inputs 2", fresh=False)
        first = self.first_inputs()
        within, changes = domains(first.tensors), changeable(first.tensors)
        del first
        for distribution in DISTRIBUTIONS if within else ():
            yield self._distribution(distribution, within)
        if expectations.first is not None:
            for indices in changes:
                yield self._one_element(indices, len(changes))
            # For a task that changes its state, repeating an input is one more call with results of its own.
            known = None if reference.mutated or reference.remembers else expectations.first
            yield Step("the first inputs elsewhere", self._seed(), [Way(self.first_inputs)], known=known)
            yield Step(NAME, self._seed(), [], "not a number", needed=True)
            for name, kind in NUMBERS.items() if not reference.remembers else ():
                if other_numbers(expectations.first.values, kind) is not None:
                    yield Step(name, self._seed(), [Way(partial(self._other_numbers, kind))], "numbers", needed=True)
        if weighted:
            yield self._weighted("random weights")
        for variant in range(reference.variants):
            yield self._variant(variant)
        if self.full:
            for count in range(3, 6):
                yield self._task_inputs(f"task inputs {count}", self.draws.random() < 0.5)
            if weighted:
                yield self._weighted("random weights 2", "heavy-tailed")
        if expectations.first is not None and not reference.remembers:
            known = None if reference.mutated else expectations.first
            yield Step(AGAIN, self._seed(), [Way(self.first_inputs)], "constructed again", known=known, needed=True)

    def bears(self, way: Way, borne: bool) -> None:
        """Records whether the task could handle a distribution within a domain."""
        if way.domain is not None and not borne:
            self.refused[way.domain] = self.refused.get(way.domain, 0) + 1

    def _seed(self) -> int:
        return self.draws.getrandbits(32)

    def _own(self, name: str, draw: Callable[[], Values | None], fresh: bool = True, needed: bool = False) -> Step:
        return Step(name, self._seed(), [Way(draw)], fresh=fresh, needed=needed)

    def _task_inputs(self, name: str, fresh: bool) -> Step:
        seed = self._seed()
        return Step(name, seed, [Way(lambda: self.reference.inputs(seed))], fresh=fresh)

    def _variant(self, number: int) -> Step:
        seed = self._seed()
        return Step(f"input variant {number + 1}", seed, [Way(lambda: self.reference.inputs(seed, number))], needed=True)

    def _other_numbers(self, kind: type) -> Values | None:
        return other_numbers(self.first_inputs(), kind)

    def _one_element(self, indices: list[int], groups: int) -> Step:
        seed = self._seed()
        name = "one element changed" if groups == 1 else f"one element of input {', '.join(map(str, indices))} changed"
        return Step(name, seed, [Way(lambda: changed_elements(self.first_inputs(), indices, seed))], "distribution", fresh=False, needed=True)

    def _distribution(self, name: str, within: Sequence[Domain]) -> Step:
        seed = self._seed()

        def way(domain: Domain) -> Way:
            return Way(lambda: self.reference.reshaped(self.reference.inputs(seed), name, domain, seed), None, domain.describe(), domain)

        ways = [way(domain) for domain in within if self.refused.get(domain, 0) < GIVEN_UP]
        return Step(name, seed, ways, "distribution", fresh=self.draws.random() < 0.5, needed=name in DISTRIBUTIONS[:2])

    def _weighted(self, name: str, distribution: str = "") -> Step:
        seed = self._seed()

        def draw() -> Values:
            values = self.reference.inputs(seed)
            return (self.reference.reshaped(values, distribution, PLAIN, seed) if distribution else None) or values

        def way(wide: bool, buffers: bool, detail: str) -> Way:
            return Way(draw, lambda: other_weights(self.reference.state, self.original, seed, wide, buffers), detail, wide=(wide, buffers))

        ways = [way(True, True, ""), way(False, True, "signs kept"), way(True, False, "buffers kept"), way(False, False, "signs and buffers kept")]
        constants = any(entry.spec.floating and not entry.parameter for entry in self.reference.state)
        return Step(name, seed, ways if constants else ways[:2], "weights", needed=not distribution)


def other_weights(state: list[StateEntry], original: Weights, seed: int, wide: bool = True, buffers: bool = True) -> Weights:
    """Draws random values for parameters, for statistics of norms and, with `buffers`, for all other floating entries."""
    generator = torch.Generator(device=original[0].device).manual_seed(seed)
    by_name: dict[str, torch.Tensor] = {}
    for entry, tensor in zip(state, original, strict=True):
        if entry.alias in by_name:
            by_name[entry.name] = by_name[entry.alias]
            continue
        moves = entry.parameter or buffers or entry.name.endswith(("running_mean", "running_var"))
        other = randomised(entry.name, tensor, entry.parameter, generator, wide) if moves else None
        by_name[entry.name] = tensor.clone() if other is None else other
    return list(by_name.values())


def changed_elements(values: Values, indices: list[int], seed: int) -> Values | None:
    """Returns the inputs with one element changed in each input that `indices` name; null where none of them has another value to take."""
    tensors, changed = list(values.tensors), False
    for index in indices:
        other = one_element(tensors[index], seed + index)
        if other is not None:
            tensors[index], changed = other, True
    return Values(values.tree, values.specs, tensors) if changed else None


def other_numbers(values: Values, kind: type) -> Values | None:
    """The same inputs with other floats, or flags, among the arguments that are no tensors; null where there is none. Integers stay: they may be
    dimensions or sizes, and on a GPU an index beyond its tensor ends the reference."""
    changed = False

    def walk(node: Any) -> Any:
        nonlocal changed
        if not isinstance(node, dict) or len(node) != 1:
            return node
        (form, body), *_ = node.items()
        if form == "v" and isinstance(body, (bool, float)) and type(body) is kind:
            changed = True
            return {"v": not body if kind is bool else body * SMALLER if body else SMALLER}
        if form in ("l", "u"):
            return {form: [walk(item) for item in body]}
        return {"d": {key: walk(item) for key, item in body.items()}} if form == "d" else node

    tree = walk(values.tree)
    return Values(tree, values.specs, values.tensors, values.arena) if changed else None


def constant(tensor: torch.Tensor) -> bool:
    """Whether a tensor is floating and all its elements are equal: zeros, ones."""
    return tensor.is_floating_point() and tensor.numel() > 0 and bool((tensor == tensor.flatten()[0]).all())
