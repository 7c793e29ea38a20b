"""Plans the trial calls: inputs from several distributions and with several shapes, other weights, and fresh and reused addresses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from verifier.correctness.expectation import Expectations, Expected
from verifier.correctness.inputs import DISTRIBUTIONS, MIXED, Domain, changeable, domains, one_element
from verifier.correctness.not_a_number import NAME
from verifier.judge.session import ReferenceSession, StateEntry, Values
from verifier.randomising import randomised

Weights = list[torch.Tensor]
Kind = Literal["own", "distribution", "weights", "not a number", "numbers", "constructed again"]
NUMBERS: dict[str, type] = {"other numbers": float, "other integers": int, "other flags": bool}
SMALLER = 0.75  # factor on a float argument
AGAIN = "the first inputs, constructed again"
GIVEN_UP = 2  # number of failed distributions after which a domain is no longer tried
PLAIN = Domain("any", "own")


@dataclass
class Way:
    """One way to draw the inputs for a step, if the task can handle it. The widest way is tried first. `draw` returns null if there is nothing to
    vary."""

    draw: Callable[[], Values | None]
    weights: Callable[[], Weights] | None = None
    detail: str = ""
    domain: Domain | None = None
    wide: tuple[bool, bool] | None = None  # for `weights`: the last arguments of `other_weights`


@dataclass
class Step:
    """One planned call. The inputs may take gigabytes, so they are drawn when the step runs and are not kept. With `fresh`, the inputs have a new
    address; otherwise, new contents are written to old addresses. With `needed`, there is no verdict without this call, however slow the task is."""

    name: str
    seed: int
    ways: list[Way]
    kind: Kind = "own"
    fresh: bool = True
    known: Expected | None = None
    needed: bool = False


@dataclass
class Plan:
    """Orders trials so that cheap and revealing trials come first. `first_inputs` draws the inputs that the task was prepared with."""

    reference: ReferenceSession
    draws: random.Random
    original: Weights
    full: bool
    first_inputs: Callable[[], Values]

    def __post_init__(self) -> None:
        self.refused: dict[Domain, int] = {}  # for each domain, the number of distributions on which the task failed
        self.each: list[Domain | None] | None = None  # for `MIXED`, the domain of each input; null until they are needed

    def steps(self, expectations: Expectations) -> Iterator[Step]:
        """Yields the steps. Later steps depend on what earlier steps have revealed about the task."""
        reference = self.reference
        weighted = any(entry.spec.floating for entry in reference.state)
        moves = bool(reference.mutated or reference.remembers)
        yield self._own("task inputs 1", self.first_inputs, needed=True)
        yield self._task_inputs("task inputs 2", fresh=False)
        first = self.first_inputs()
        within, changes = domains(first.tensors), changeable(first.tensors)
        if len(within) > 1 and sum(tensor.numel() > 0 for tensor in first.tensors) > 1:
            within.insert(1, MIXED)
        del first
        for distribution in DISTRIBUTIONS if within else ():
            yield self._distribution(distribution, within)
        if expectations.first is not None:
            for indices in changes:
                yield self._one_element(indices, len(changes), wide=bool(within) and not self.refused.get(within[0]))
            # If a task changes its state, a repeated input is simply another call with a different result.
            known = None if reference.mutated or reference.remembers else expectations.first
            yield Step("the first inputs elsewhere", self._seed(), [Way(self.first_inputs)], known=known)
            if not moves:
                yield self._not_a_number()
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
        if moves and expectations.first is not None:
            yield self._not_a_number()  # NaN stays in a state, so this comes last

    def bears(self, way: Way, borne: bool) -> None:
        """Records whether the task could handle a distribution in a domain."""
        if way.domain is not None and not borne:
            self.refused[way.domain] = self.refused.get(way.domain, 0) + 1

    def _seed(self) -> int:
        return self.draws.getrandbits(32)

    def _own(self, name: str, draw: Callable[[], Values | None], fresh: bool = True, needed: bool = False) -> Step:
        return Step(name, self._seed(), [Way(draw)], fresh=fresh, needed=needed)

    def _task_inputs(self, name: str, fresh: bool) -> Step:
        seed = self._seed()
        return Step(name, seed, [Way(lambda: self.reference.inputs(seed))], fresh=fresh)

    def _not_a_number(self) -> Step:
        return Step(NAME, self._seed(), [], "not a number", needed=True)

    def _variant(self, number: int) -> Step:
        seed = self._seed()
        return Step(f"input variant {number + 1}", seed, [Way(lambda: self.reference.inputs(seed, number))], needed=True)

    def _other_numbers(self, kind: type) -> Values | None:
        return other_numbers(self.first_inputs(), kind)

    def _one_element(self, indices: list[int], groups: int, wide: bool) -> Step:
        seed = self._seed()
        name = "one element changed" if groups == 1 else f"one element of input {', '.join(map(str, indices))} changed"
        return Step(name, seed, [Way(lambda: changed_elements(self.first_inputs(), indices, seed, wide))], "distribution", fresh=False, needed=True)

    def _distribution(self, name: str, within: Sequence[Domain]) -> Step:
        seed = self._seed()

        def way(domain: Domain) -> Way:
            return Way(lambda: self._reshaped(name, domain, seed), None, domain.describe(), domain)

        ways = [way(domain) for domain in within if self.refused.get(domain, 0) < GIVEN_UP]
        return Step(name, seed, ways, "distribution", fresh=self.draws.random() < 0.5, needed=name in DISTRIBUTIONS[:2])

    def _reshaped(self, name: str, domain: Domain, seed: int) -> Values | None:
        if not domain.mixed:
            return self.reference.reshaped(self.reference.inputs(seed), name, domain, seed)
        each, values = self.each or [], self.reference.inputs(seed)
        wide = all(one is not None and (one.floats, one.discrete) == ("any", "drawn") for one in each)
        return None if wide else self.reference.reshaped(values, name, each, seed)  # together, the widest have just failed

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
    """Draws random values for parameters, normalisation statistics and, with `buffers`, all other floating-point entries."""
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


def changed_elements(values: Values, indices: list[int], seed: int, wide: bool) -> Values | None:
    """Returns the inputs with one element changed in each input that `indices` names. `wide`: the task accepts any numbers. Returns null if no input
    can take another value."""
    tensors, changed = list(values.tensors), False
    for index in indices:
        other = one_element(tensors[index], seed + index, wide)
        if other is not None:
            tensors[index], changed = other, True
    return Values(values.tree, values.specs, tensors) if changed else None


def other_numbers(values: Values, kind: type) -> Values | None:
    """Returns the same inputs but with other floats, integers or flags among the non-tensor arguments. Returns null if there are no such arguments.
    An integer may be a dimension, a size or an index. In most tasks, the next integer towards zero is also a valid one; a task that does not accept
    it is not tried with it."""
    changed = False

    def walk(node: Any) -> Any:
        nonlocal changed
        if not isinstance(node, dict) or len(node) != 1:
            return node
        (form, body), *_ = node.items()
        if form == "v" and isinstance(body, (bool, int, float)) and type(body) is kind:
            changed = True
            return {"v": _other_number(body)}
        if form in ("l", "u"):
            return {form: [walk(item) for item in body]}
        return {"d": {key: walk(item) for key, item in body.items()}} if form == "d" else node

    tree = walk(values.tree)
    return Values(tree, values.specs, values.tensors, values.arena) if changed else None


def _other_number(number: bool | int | float) -> bool | int | float:
    if isinstance(number, bool):
        return not number
    if isinstance(number, int):
        return number - 1 if number > 0 else number + 1
    return number * SMALLER if number else SMALLER
