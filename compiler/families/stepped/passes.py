"""Finds a loop that forward has unrolled: a run of operators that repeats many times with the same structure.

The passes must be identical except in three respects. A value may come from the previous pass (the first pass then reads an initial value
instead), a view of an outside tensor may advance by the same distance in every pass, and floating-point numbers may differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any
from weakref import WeakKeyDictionary

from compiler.graph.constants import CONSTANTS, filled_with
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network, count, refs
from compiler.graph.reductions import short
from verifier.draws import draws
from verifier.graph import ASSERTION, Node

LEAST_PASSES = 8
LONGEST = 400  # operators per pass
MOST_RUNS = 12  # that are searched for passes, the longest first
MOST_TRIES = 60  # at the first operator of a loop
CAT = "aten.cat.default"
TAKE_NUMBERS = ("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor")


@dataclass(frozen=True)
class Stack:
    """A concatenation of one value of all passes, in order or backwards, and of values from outside.

    Element `at` of row `row` of its part `step` is at step * `steps` + row * `rows` + at, or, if a row has more than `steps` elements in a part, at
    step * `steps` + row * `rows` + at / `steps` * `parts` * `steps` + at % `steps`. The passes have the parts from `lead` on; `others` pairs the
    numbers of the other parts with their values."""

    name: str
    position: int
    steps: int
    rows: int
    parts: int
    backwards: bool = False
    lead: int = 0
    others: tuple[tuple[int, str], ...] = ()

    def apart(self, first: int, batch: int) -> bool:
        """Returns whether the parts have a separate axis, the `first` one of the result, before the axis of the `batch`."""
        return self.steps > self.rows and first == self.parts != self.parts * batch


@dataclass
class Passes:
    """The operators of each pass, in the same order. A position is an operator's index in its pass. The last pass may lack operators whose results
    only a next pass would need; it has "" in their places."""

    names: list[list[str]]
    varying: set[int] = field(default_factory=set)  # positions of operators for which a number differs from pass to pass
    begins: dict[int, str] = field(default_factory=dict)  # position -> what the first pass reads in place of the previous pass's value
    initial: set[str] = field(default_factory=set)  # what the first pass reads in these places, of which the former may be the whole
    stacks: list[Stack] = field(default_factory=list)
    finals: list[int] = field(default_factory=list)  # positions whose values of the last pass are read after the loop

    @property
    def members(self) -> list[str]:
        return [*(name for one in self.names for name in one if name), *(stack.name for stack in self.stacks)]


_FOUND: WeakKeyDictionary[Network, dict[str, Passes]] = WeakKeyDictionary()


def passes_of(network: Network) -> dict[str, Passes]:
    """Returns the passes of each of the network's loops under the name of the loop's first operator. The search runs once for each network."""
    if network not in _FOUND:
        _FOUND[network] = {one.names[0][0]: one for one in _Search(network).found()}
    return _FOUND[network]


def computes(network: Network, node: Node) -> bool:
    """Returns whether the operator computes something in every call, unlike views, constants and values that are computed once from weights."""
    return not (network.is_view(node.name) or node.op in SPLITS or short(node) in CONSTANTS or network.of_weights(node.name))


class _Search:
    """Searches for runs of operators that equal the operators one period earlier, and for the passes in each run."""

    def __init__(self, network: Network):
        self.network = network
        self.nodes = [node for node in network.nodes.values() if computes(network, node)]
        numbers: dict[Any, int] = {}
        self.signs = [numbers.setdefault(_signature(network, node), len(numbers)) for node in self.nodes]
        place = {node.name: at for at, node in enumerate(self.nodes)}
        bases = [[network.base(name) for name in refs([node.args, list(node.kwargs.values())])] for node in self.nodes]
        self.operands = [[(base, place.get(base, -1)) for base in own] for own in bases]

    def found(self) -> list[Passes]:
        """Returns the loops, none of which share operators."""
        found: list[Passes] = []
        waiting = [(0, len(self.nodes))]
        while waiting:
            begin, end = waiting.pop()
            passes = self._largest(begin, end)
            if passes is not None:
                found.append(passes)
                first = next(at for at in range(begin, end) if self.nodes[at].name == passes.names[0][0])
                waiting += [(begin, first), (first + sum(bool(name) for one in passes.names for name in one), end)]
        return found

    def _largest(self, begin: int, end: int) -> Passes | None:
        """Returns the loop that covers most of the operators from `begin` to `end`."""
        runs: list[tuple[int, int, int]] = []
        signs = self.signs[begin:end]
        for period in range(2, min(LONGEST, (end - begin) // LEAST_PASSES) + 1):
            runs += [(length + period, period, begin + at) for at, length in _runs(signs, period)]
        runs.sort(key=lambda run: (-run[0], run[1]))
        tries = 0
        for covered, period, first in runs[:MOST_RUNS]:
            for number, start in self._candidates(first, first + covered, period):
                tries += 1
                if tries > MOST_TRIES:
                    return None
                names = [[node.name for node in self.nodes[start + at * period : start + (at + 1) * period]] for at in range(number)]
                rest = self._rest(range(start, start + period), start + number * period, end)
                passes = _aligned(self.network, [*names, rest]) if rest else None
                passes = passes or _aligned(self.network, names)
                if passes is not None:
                    return passes
        return None

    def _rest(self, first: range, begin: int, end: int) -> list[str]:
        """Returns the names of the operators from `begin` up to `end`, in the order of a pass like the `first`. Missing operators have "" in their
        places. The list is empty if all are missing."""
        names: list[str] = []
        at = begin
        for one in first:
            there = at < end and self.signs[at] == self.signs[one]
            names.append(self.nodes[at].name if there else "")
            at += there
        return names if at > begin else []

    def _candidates(self, begin: int, end: int, period: int) -> list[tuple[int, int]]:
        """Returns (number of passes, first operator), most passes first, for the parts of a run in which operands correspond from pass to pass. Only
        the first pass may read something other than the value of the previous pass."""
        found = []
        last, other = end, end  # exclusive ends of passes that begin at `start`, by the operands from there on and from its second pass on
        ends: dict[int, int] = {}
        for at in range(end - period - 1, begin - 1, -1):
            kind = self._relation(at, period)
            if at + period < end - period:
                other = min(other, ends.get(at + period, end))
            if kind == "other":
                last = at + period
            ends[at] = at + period if kind == "initial" else end
            number = (min(last, other) - at) // period
            if number >= LEAST_PASSES:
                found.append((number, at))
        return sorted(found, key=lambda one: (-one[0], one[1]))[:period]

    def _relation(self, at: int, period: int) -> str:
        """Compares an operator's operands with those of the operator one period later: "same" means that they correspond, and "initial" that they
        correspond if the former operator is in the first pass."""
        found = "same"
        for (base, one), (other, later) in zip(self.operands[at], self.operands[at + period], strict=True):
            if later >= 0 and later not in (one, one + period):
                found = "initial"
            elif later < 0 and base != other and not all(self._constant(name) for name in (base, other)):
                return "other"
        return found

    def _constant(self, name: str) -> bool:
        node = self.network.nodes.get(name)
        return node is not None and short(node) in CONSTANTS


def _runs(signs: Sequence[int], period: int) -> list[tuple[int, int]]:
    """Returns the start and length of each sufficiently long run of elements that equal the elements `period` positions later."""
    equal = bytes(map(eq, signs, signs[period:]))
    found, begin = [], 0
    for run in equal.split(b"\0"):
        if len(run) >= (LEAST_PASSES - 1) * period:
            found.append((begin, len(run)))
        begin += len(run) + 1
    return found


def _signature(network: Network, node: Node) -> Any:
    specs = tuple((tuple(spec.shape), spec.dtype) for spec in node.outputs)
    return node.op, specs, _form(node.args, _scalars(node)), tuple(sorted((key, _form(value)) for key, value in node.kwargs.items()))


def _scalars(node: Node) -> bool:
    """Returns whether integers among the operator's arguments are operands rather than axes or sizes."""
    return node.op.endswith(".Scalar") or node.op in TAKE_NUMBERS


def _form(value: Any, whole: bool = False) -> Any:
    """Returns an argument without the names of tensors and the values of floating-point numbers or, with `whole`, of integers."""
    if isinstance(value, dict):
        return "ref" if "ref" in value else "number" if "float" in value else str(value)
    if isinstance(value, (list, tuple)):
        return tuple(_form(one, whole) for one in value)
    number = isinstance(value, float) or whole and isinstance(value, int) and not isinstance(value, bool)
    return "number" if number else (type(value).__name__, value)


def numbers_of(value: Any) -> list[Any]:
    """Returns the numbers among an operator's arguments."""
    if isinstance(value, dict):
        return [value["float"]] if "float" in value else []
    if isinstance(value, (list, tuple)):
        return [number for one in value for number in numbers_of(one)]
    return [value] if isinstance(value, (float, int)) else []


def _aligned(network: Network, names: list[list[str]]) -> Passes | None:
    """Returns the passes if they are alike and only results that a kernel can store are read from outside."""
    if any(draws(node.op, node.args, node.kwargs) or node.op == ASSERTION or len(node.outputs) != 1
           for node in (network.nodes[name] for name in names[0])):  # fmt: skip
        return None
    place = {name: (number, at) for number, one in enumerate(names) for at, name in enumerate(one) if name}
    found = Passes(names)
    if not _results(network, found, place):
        return None
    for at in range(len(names[0])):
        nodes = [network.nodes[one[at]] for one in names if one[at]]
        if len({tuple(map(str, numbers_of([node.args, list(node.kwargs.values())]))) for node in nodes}) > 1:
            found.varying.add(at)
        columns = [refs([node.args, list(node.kwargs.values())]) for node in nodes]
        for column in zip(*columns, strict=True):
            if not _same_role(network, found, place, at, list(column)) or not names[-1][at] and not _stays_inside(network, column[-2], column[-1]):
                return None
    return found if _apart(network, found) else None


def _same_role(network: Network, found: Passes, place: dict[str, tuple[int, int]], at: int, column: list[str]) -> bool:
    """Returns whether an operand is the same in all passes: a value from the same pass or the previous one, or an outside tensor that advances by a
    constant stride."""
    bases = [network.base(name) for name in column]
    own = [place.get(base) for base in bases]
    if len({_kind(network, name) for name in column}) > 1:
        return False
    if own[1] is not None:
        number, position = own[1]
        layouts = {(network.layouts[name].strides, network.layouts[name].offset) for name in column[number == 0 :]}
        if number not in (0, 1) or len(layouts) > 1:
            return False
        since = 1 - number
        if any(own[later] != (later - since, position) for later in range(since, len(column))):
            return False
        if not since:
            return True
        initial = None if own[0] is not None else _initial(network, column[0], column[1])
        if initial is None:
            return False
        found.initial.add(column[0])
        known = found.begins.setdefault(position, initial)
        return known == initial or _fill(network, known) is not None and str(_fill(network, known)) == str(_fill(network, initial))
    if any(one is not None for one in own):
        return False
    makers = [network.nodes.get(name) for name in column]
    if all(maker is not None and short(maker) in CONSTANTS for maker in makers):
        if any(maker is not None and short(maker) == "arange" for maker in makers):
            return len({str(maker.args) for maker in makers if maker is not None}) == 1
        if len({str(filled_with(maker)) for maker in makers if maker is not None}) > 1:
            found.varying.add(at)
        return True
    if len(set(bases)) > 1:
        return False
    moving = [network.layouts[name] for name in column]
    step = moving[1].offset - moving[0].offset
    even = all(layout.offset == moving[0].offset + number * step for number, layout in enumerate(moving))
    return even and len({layout.strides for layout in moving}) == 1


def _stays_inside(network: Network, one: str, other: str) -> bool:
    """Returns whether the next view, which follows `other` as `other` follows `one`, is still inside the tensor."""
    layout, step = network.layouts[other], network.layouts[other].offset - network.layouts[one].offset
    reach = sum((size - 1) * stride for size, stride in zip(layout.shape, layout.strides, strict=True))
    first = layout.offset + step
    return network.base(one) != network.base(other) or first >= 0 and first + reach < count(network.spec(network.base(other)))


def _kind(network: Network, name: str) -> Any:
    return tuple(network.spec(name).shape), network.spec(name).dtype


def _initial(network: Network, first: str, later: str) -> str | None:
    """Returns the holder of the initial value if the first pass reads `first` where the others read `later`, which is a value of the previous pass or
    a part of it."""
    layout, whole = network.layouts[later], network.base(later)
    own, base = network.layouts[first], network.base(first)
    if layout.contiguous and not layout.offset and count(network.spec(later)) == count(network.spec(whole)) or _fill(network, first) is not None:
        alike = own.contiguous and count(network.spec(base)) == count(network.spec(first)) and network.spec(base).shape[:1] == own.shape[:1]
        return base if alike and network.layouts[base].contiguous else first
    same = (own.strides, own.offset) == (layout.strides, layout.offset) and network.layouts[base].contiguous
    return base if same and network.spec(base).shape == network.spec(whole).shape else None


def _fill(network: Network, name: str) -> Any:
    """Returns the value of all elements of a tensor that is filled with one number, or None for any other."""
    node = network.nodes.get(name)
    return filled_with(node) if node is not None and short(node) in CONSTANTS and short(node) != "arange" else None


def _results(network: Network, found: Passes, place: dict[str, tuple[int, int]]) -> bool:
    """Fills `stacks` and `finals`. Returns whether these are all the values that are read outside the passes."""
    last = len(found.names) - 1
    stacks: dict[str, Stack] = {}
    for name, (number, position) in place.items():
        outside = [reader for reader in network.readers(name) if reader not in place]
        final = network.escapes(name)
        for reader in outside:
            if reader not in stacks and (stack := _stack(network, found, place, reader)) is not None:
                stacks[reader] = stack
            final |= reader not in stacks or stacks[reader].position != position
        if final and number < last:
            return False
        if final:
            found.finals.append(position)
    found.stacks = list(stacks.values())
    return bool(found.stacks or found.finals)


def _stack(network: Network, found: Passes, place: dict[str, tuple[int, int]], name: str) -> Stack | None:
    node = network.nodes[name]
    if node.op != CAT or len(node.args[0]) < len(found.names):
        return None
    every = [part["ref"] for part in node.args[0]]
    owned = [place.get(network.base(part)) for part in every]
    lead = next((at for at, owner in enumerate(owned) if owner is not None), len(every))
    end = lead + len(found.names)
    parts, owners = every[lead:end], owned[lead:end]
    others = tuple((at, part) for at, part in enumerate(every) if not lead <= at < end)
    if len(parts) < len(found.names) or any(owned[at] is not None or _kind(network, part) != _kind(network, parts[0]) for at, part in others):
        return None
    if owners[0] is None:
        return None
    backwards = owners[0][0] > 0
    order = reversed(range(len(parts))) if backwards else range(len(parts))
    if any(owner != (number, owners[0][1]) for number, owner in zip(order, owners, strict=True)):
        return None
    shape, whole = tuple(network.spec(parts[0]).shape), tuple(network.spec(name).shape)
    value = network.spec(found.names[0][owners[0][1]])
    axis = (node.args[1] if len(node.args) > 1 else 0) % len(whole)
    if count(network.spec(parts[0])) != count(value) or not value.shape:
        return None
    if any(not network.layouts[part].contiguous or network.layouts[part].offset for part in parts):
        return None
    width = count(value) // value.shape[0]
    if axis == 0:
        return Stack(name, owners[0][1], count(value), width, len(every), backwards, lead, others)
    if shape[0] != value.shape[0]:
        return None
    return Stack(name, owners[0][1], math.prod(shape[axis:]), width * len(every), len(every), backwards, lead, others)


def _apart(network: Network, found: Passes) -> bool:
    """Returns whether the passes read nothing that is computed from their own values, in which case everything that they read exists before they
    begin."""
    members = set(found.members)
    behind = set(members)
    for name, node in network.nodes.items():
        sources = refs([node.args, list(node.kwargs.values())])
        if name in members:
            if any(source in behind and network.base(source) not in members for source in sources):
                return False
        elif any(source in behind for source in sources):
            behind.add(name)
    return not any(network.base(name) in behind for name in found.begins.values())
