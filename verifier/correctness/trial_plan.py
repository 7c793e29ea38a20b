"""Plans the trial calls: inputs from several distributions and in several shapes, other weights, and fresh and reused addresses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch

from verifier.correctness.arguments import alternatives
from verifier.correctness.bounds import position
from verifier.correctness.expectation import Expectations, Expected
from verifier.correctness.inputs import DISTRIBUTIONS, MIXED, Domain, changeable, concentrate, domains, on_a_grid, one_element, other_constant
from verifier.correctness.not_a_number import NAME
from verifier.correctness.spread import LEAST
from verifier.judge.session import ReferenceSession, Values
from verifier.randomising import randomised

Weights = list[torch.Tensor]
Kind = Literal["own", "distribution", "equal numbers", "empty rows", "weights", "not a number", "numbers", "constructed again"]
Width = tuple[bool, bool, bool]  # the last arguments of `other_weights`
EQUAL = "equal numbers"
AGAIN = "the first inputs, constructed again"
GIVEN_UP = 2  # number of failed distributions after which a domain is dropped
PLAIN = Domain("any", "own")


@dataclass
class Way:
    """One way to draw the inputs for a step, used if the task can handle it. The widest is tried first. `draw` returns null if there is nothing to
    vary."""

    draw: Callable[[], Values | None]
    weights: Callable[[], Weights] | None = None
    detail: str = ""
    domain: Domain | None = None
    wide: Width | None = None  # for `weights`


@dataclass
class Step:
    """One planned call. The inputs may take up gigabytes, so they are drawn when the step runs and are not kept. With `fresh`, the inputs have new
    addresses; otherwise, new contents are written to the old addresses. With `needed`, there is no verdict without this call, however slow the task
    is."""

    name: str
    seed: int
    ways: list[Way]
    kind: Kind = "own"
    fresh: bool = True
    known: Expected | None = None
    needed: bool = False


@dataclass
class TrialPlan:
    """Orders trials so that cheap and revealing trials come first. `first_inputs` draws the inputs with which the task was prepared."""

    reference: ReferenceSession
    draws: random.Random
    original: Weights
    full: bool
    first_inputs: Callable[[], Values]

    def __post_init__(self) -> None:
        self.refused: dict[Domain, int] = {}  # for each domain, the number of distributions on which the task failed
        self.each: list[Domain | None] | None = None  # for `MIXED`, the domain of each input; null until needed

    def steps(self, expectations: Expectations) -> Iterator[Step]:
        """Yields the steps. Later steps depend on what earlier ones have revealed about the task."""
        reference = self.reference
        weighted = any(entry.spec.inexact for entry in reference.state) or bool(self.constants)
        moves = bool(reference.mutated or reference.remembers)
        yield self._own("task inputs 1", self.first_inputs, needed=True)
        yield self._task_inputs("task inputs 2", fresh=False)
        first = self.first_inputs()
        within, changes, floating = domains(first.tensors), changeable(first.tensors), any(spec.floating for spec in first.specs)
        masked = [at for at, tensor in enumerate(first.tensors) if tensor.dtype == torch.bool and tensor.dim() > 1 and tensor.numel()]
        if len(within) > 1 and sum(tensor.numel() > 0 for tensor in first.tensors) > 1:
            within.insert(1, MIXED)
        del first
        for distribution in DISTRIBUTIONS if within else ():
            yield self._distribution(distribution, within)
        if floating and reference.backward is None:  # the gradient at a kink is undefined
            yield self._equal_numbers()
        if floating and self._averages(expectations):
            yield self._one_number()
        if masked:
            yield self._empty_rows(masked)
        if expectations.first is not None:
            for indices in changes:
                yield self._one_element(indices, len(changes), wide=bool(within) and not self.refused.get(within[0]))
            # If a task changes its state, a repeated input is just another call with a different result.
            known = None if reference.mutated or reference.remembers else expectations.first
            yield Step("the first inputs elsewhere", self._seed(), [Way(self.first_inputs)], known=known)
            if not moves:
                yield self._not_a_number()
            for name, changes_of in alternatives(expectations.first.values.tree, reference.source, self.draws):
                seed = self._seed()
                yield Step(name, seed, [Way(partial(self._replaced, change, seed)) for change in changes_of], "numbers", needed=True)
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
            yield self._not_a_number()  # NaN would stay in the state, so this comes last

    @property
    def constants(self) -> list[int]:
        """Returns the state entries that consist of equal integers or booleans and that calls do not change."""
        entries = enumerate(zip(self.reference.state, self.original, strict=True))
        fixed = ((at, tensor) for at, (entry, tensor) in entries if entry.name not in self.reference.mutated)
        return [at for at, tensor in fixed if other_constant(tensor, torch.Generator(device=tensor.device).manual_seed(0)) is not None]

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

    def _replaced(self, change: Callable[[Values, int], Values | None], seed: int) -> Values | None:
        return change(self.first_inputs(), seed)

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

    def _equal_numbers(self) -> Step:
        seed = self._seed()

        def draw(whole: bool) -> Values | None:
            values = self.reference.inputs(seed)
            return values if on_a_grid(values.tensors, whole) else None

        ways = [Way(partial(draw, True)), Way(partial(draw, False), detail="range kept")]
        return Step(EQUAL, seed, ways, "equal numbers", fresh=False, needed=True)

    def _empty_rows(self, indices: list[int]) -> Step:
        """Makes one row of each mask entirely false and another one entirely true. No distribution does, because many tasks have no result for such a
        row; those that do have code for it."""
        seed = self._seed()

        def draw() -> Values:
            values = self.first_inputs()
            tensors = [with_empty_row(tensor, seed) if at in indices else tensor for at, tensor in enumerate(values.tensors)]
            return Values(values.tree, values.specs, tensors)

        return Step("a row without any", seed, [Way(draw)], "empty rows", fresh=False, needed=True)

    @staticmethod
    def _averages(expectations: Expectations) -> bool:
        """Returns whether any floating-point output has so few elements that nothing but their largest error is compared."""
        outputs = expectations.first.outputs.specs if expectations.first is not None else []
        return any(spec.inexact and spec.numel < LEAST for spec in outputs)

    def _one_number(self) -> Step:
        seed = self._seed()

        def draw() -> Values | None:
            values = self.reference.inputs(seed)
            return values if concentrate(values.tensors, seed) else None

        return Step("one number", seed, [Way(draw)], "distribution", fresh=False, needed=True)

    def _reshaped(self, name: str, domain: Domain, seed: int) -> Values | None:
        if not domain.mixed:
            return self.reference.reshaped(self.reference.inputs(seed), name, domain, seed)
        each, values = self.each or [], self.reference.inputs(seed)
        wide = all(one is not None and (one.floats, one.discrete) == ("any", "drawn") for one in each)
        return None if wide else self.reference.reshaped(values, name, each, seed)  # the widest domains for all inputs have just failed

    def _weighted(self, name: str, distribution: str = "") -> Step:
        seed = self._seed()

        def draw() -> Values:
            values = self.reference.inputs(seed)
            return (self.reference.reshaped(values, distribution, PLAIN, seed) if distribution else None) or values

        def way(wide: bool, buffers: bool, discrete: bool, detail: str) -> Way:
            width = (wide, buffers, discrete)
            return Way(draw, lambda: other_weights(self.reference, self.original, seed, *width), detail, wide=width)

        floats = any(entry.spec.inexact and not entry.parameter for entry in self.reference.state)
        said = {(True, True): "", (False, True): "signs kept", (True, False): "buffers kept", (False, False): "signs and buffers kept"}
        ways = [way(*width, False, detail) for width, detail in said.items() if floats or width[1]]
        if self.constants:
            integers = "integers kept" if any(entry.spec.inexact for entry in self.reference.state) else ""
            ways = [way(True, True, True, ""), way(False, True, True, "signs kept")] + [
                replace(one, detail=", ".join(filter(None, (one.detail, integers)))) for one in ways
            ]
        return Step(name, seed, ways, "weights", needed=not distribution)


def other_weights(
    reference: ReferenceSession, original: Weights, seed: int, wide: bool = True, buffers: bool = True, discrete: bool = False
) -> Weights:
    """Draws random values for parameters, normalisation statistics and, with `buffers`, all other floating-point entries. With `discrete`, also draws
    entries of equal integers or booleans that calls do not change."""
    generator = torch.Generator(device=original[0].device).manual_seed(seed)
    by_name: dict[str, torch.Tensor] = {}
    for entry, tensor in zip(reference.state, original, strict=True):
        if entry.alias in by_name:
            by_name[entry.name] = by_name[entry.alias]
            continue
        moves = entry.parameter or buffers or entry.name.endswith(("running_mean", "running_var"))
        other = randomised(entry.name, tensor, entry.parameter, generator, wide) if moves else None
        if discrete and not entry.spec.inexact and entry.name not in reference.mutated:
            other = other_constant(tensor, generator)
        by_name[entry.name] = tensor.clone() if other is None else other
    return list(by_name.values())


def with_empty_row(mask: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns a copy of a mask in which one row is entirely false and, if there are others, one of them entirely true."""
    made, draws = mask.clone(), random.Random(seed)
    rows = mask.numel() // mask.shape[-1]
    for row, kept in zip(draws.sample(range(rows), min(rows, 2)), (False, True), strict=False):
        made[position(row, tuple(mask.shape[:-1]))] = kept
    return made


def changed_elements(values: Values, indices: list[int], seed: int, wide: bool) -> Values | None:
    """Returns the inputs with one element changed in each input listed in `indices`. `wide` means that the task accepts any numbers. Returns null if
    no input can take another value."""
    tensors, changed = list(values.tensors), False
    for index in indices:
        other = one_element(tensors[index], seed + index, wide)
        if other is not None:
            tensors[index], changed = other, True
    return Values(values.tree, values.specs, tensors) if changed else None
