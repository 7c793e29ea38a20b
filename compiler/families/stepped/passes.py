"""Finds a loop that forward has unrolled: a run of operators that repeats many times with the same structure.

The passes must be alike in everything except three things. A value may come from the pass before (the first pass then reads an initial value
instead), a view of an outside tensor may move on by the same distance in every pass, and floating-point numbers may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any
from weakref import WeakKeyDictionary

from compiler.graph.constants import CONSTANTS
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network, count, refs
from compiler.graph.reductions import short
from verifier.draws import draws
from verifier.graph import ASSERTION, Node

LEAST_PASSES = 8
LONGEST = 400  # operators per pass
CAT = "aten.cat.default"


@dataclass(frozen=True)
class Stack:
    """A concatenation of one value of all passes, in order or backwards. Element `at` of row `row` of its part `step` is at
    step * `steps` + row * `rows` + at."""

    name: str
    position: int
    steps: int
    rows: int
    backwards: bool = False


@dataclass
class Passes:
    """The operators of each pass, in the same order. A position is an operator's index in its pass."""

    names: list[list[str]]
    varying: set[int] = field(default_factory=set)  # positions of operators for which a number differs from pass to pass
    begins: dict[int, str] = field(default_factory=dict)  # position -> what the first pass reads in place of the previous pass's value
    stacks: list[Stack] = field(default_factory=list)
    finals: list[int] = field(default_factory=list)  # positions whose values of the last pass are read after the loop

    @property
    def members(self) -> list[str]:
        return [*(name for one in self.names for name in one), *(stack.name for stack in self.stacks)]


_FOUND: WeakKeyDictionary[Network, Passes | None] = WeakKeyDictionary()


def passes_of(network: Network) -> Passes | None:
    """Returns the passes of the network's loop, or None if it has none. The result is computed once for each network."""
    if network not in _FOUND:
        _FOUND[network] = _find(network)
    return _FOUND[network]


def computes(network: Network, node: Node) -> bool:
    """Returns whether the operator computes something in every call: views, constants and values computed once from weights do not."""
    return not (network.is_view(node.name) or node.op in SPLITS or short(node) in CONSTANTS or network.of_weights(node.name))


def _find(network: Network) -> Passes | None:
    nodes = [node for node in network.nodes.values() if computes(network, node)]
    if len(nodes) < 2 * LEAST_PASSES:
        return None
    numbers: dict[Any, int] = {}
    signs = [numbers.setdefault(_signature(network, node), len(numbers)) for node in nodes]
    best: tuple[int, int, int] = (0, 0, 0)  # operators in the run, its length per pass, its first operator
    for period in range(2, min(LONGEST, len(nodes) // LEAST_PASSES) + 1):
        begin, length = _longest(signs, period)
        if length + period >= LEAST_PASSES * period and length + period > best[0] + period:
            best = (length + period, period, begin)
    covered, period, begin = best
    for shift in range(min(period, covered % period + 1) if covered else 0):
        number = (covered - shift) // period
        first = begin + shift
        names = [[node.name for node in nodes[first + at * period : first + (at + 1) * period]] for at in range(number)]
        found = _aligned(network, names)
        if found is not None:
            return found
    return None


def _longest(signs: Sequence[int], period: int) -> tuple[int, int]:
    """Returns the begin and the length of the longest run of elements that equal the one `period` further on."""
    equal = bytes(map(eq, signs, signs[period:]))
    run = max(equal.split(b"\0"), key=len)
    return equal.find(run), len(run)


def _signature(network: Network, node: Node) -> Any:
    specs = tuple((tuple(spec.shape), spec.dtype) for spec in node.outputs)
    return node.op, specs, _form(node.args), tuple(sorted((key, _form(value)) for key, value in node.kwargs.items()))


def _form(value: Any) -> Any:
    """Returns an argument without the names of tensors and without the values of floating-point numbers."""
    if isinstance(value, dict):
        return "ref" if "ref" in value else "number" if "float" in value else str(value)
    if isinstance(value, (list, tuple)):
        return tuple(_form(one) for one in value)
    return "number" if isinstance(value, float) else (type(value).__name__, value)


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value["float"]] if "float" in value else []
    if isinstance(value, (list, tuple)):
        return [number for one in value for number in _numbers(one)]
    return [value] if isinstance(value, float) else []


def _aligned(network: Network, names: list[list[str]]) -> Passes | None:
    """Returns the passes if they are alike and nothing but the results that a kernel can store is read from outside."""
    if any(draws(node.op, node.args, node.kwargs) or node.op == ASSERTION or len(node.outputs) != 1
           for node in (network.nodes[name] for name in names[0])):  # fmt: skip
        return None
    place = {name: (number, at) for number, one in enumerate(names) for at, name in enumerate(one)}
    found = Passes(names)
    for at in range(len(names[0])):
        nodes = [network.nodes[one[at]] for one in names]
        if len({tuple(map(str, _numbers([node.args, list(node.kwargs.values())]))) for node in nodes}) > 1:
            found.varying.add(at)
        columns = [refs([node.args, list(node.kwargs.values())]) for node in nodes]
        for column in zip(*columns, strict=True):
            if not _same_role(network, found, place, at, list(column)):
                return None
    return found if _results(network, found, place) and _apart(network, found) else None


def _same_role(network: Network, found: Passes, place: dict[str, tuple[int, int]], at: int, column: list[str]) -> bool:
    """Returns whether an operand is the same in all passes: a value of the same pass, of the previous one, or an outside tensor that moves on
    evenly."""
    bases = [network.base(name) for name in column]
    own = [place.get(base) for base in bases]
    forms = {(tuple(network.spec(name).shape), network.spec(name).dtype) for name in column}
    if len(forms) > 1:
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
        layout = network.layouts[column[1]]
        if own[0] is not None or not layout.contiguous or layout.offset or count(network.spec(column[1])) != count(network.spec(bases[1])):
            return False
        return found.begins.setdefault(position, column[0]) == column[0]
    if any(one is not None for one in own):
        return False
    makers = [network.nodes.get(name) for name in column]
    if all(maker is not None and short(maker) in CONSTANTS for maker in makers):
        if len({tuple(map(str, _numbers(maker.args))) for maker in makers if maker is not None}) > 1:
            found.varying.add(at)
        return len({_form(maker.args) for maker in makers if maker is not None}) == 1
    if len(set(bases)) > 1:
        return False
    moving = [network.layouts[name] for name in column]
    step = moving[1].offset - moving[0].offset
    even = all(layout.offset == moving[0].offset + number * step for number, layout in enumerate(moving))
    return even and len({layout.strides for layout in moving}) == 1


def _results(network: Network, found: Passes, place: dict[str, tuple[int, int]]) -> bool:
    """Fills `stacks` and `finals`. Returns whether these are all the values that anything outside the passes reads."""
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
    if node.op != CAT or len(node.args[0]) != len(found.names):
        return None
    parts = [part["ref"] for part in node.args[0]]
    owners = [place.get(network.base(part)) for part in parts]
    if owners[0] is None:
        return None
    backwards = owners[0][0] > 0
    order = reversed(range(len(parts))) if backwards else range(len(parts))
    if any(owner != (number, owners[0][1]) for number, owner in zip(order, owners, strict=True)):
        return None
    shape, whole = tuple(network.spec(parts[0]).shape), tuple(network.spec(name).shape)
    value = network.spec(found.names[0][owners[0][1]])
    axis = (node.args[1] if len(node.args) > 1 else 0) % len(whole)
    if axis > 1 or count(network.spec(parts[0])) != count(value) or not value.shape:
        return None
    if any(not network.layouts[part].contiguous or network.layouts[part].offset for part in parts):
        return None
    width = count(value) // value.shape[0]
    if axis == 0:
        return Stack(name, owners[0][1], count(value), width, backwards)
    if shape[0] != value.shape[0]:
        return None
    return Stack(name, owners[0][1], width, width * len(parts), backwards)


def _apart(network: Network, found: Passes) -> bool:
    """Returns whether nothing that the passes read is computed from their values, so that everything they read exists before they begin."""
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
