"""Concatenations along the channels whose parts are computed where they belong: a convolution writes its images into the whole's memory, with the
whole's stride from image to image, and nothing is copied. A part that something else computes is copied there, once.

Concatenations that begin alike, as in a dense block, are the beginnings of the longest one: kernels read the shorter ones with its stride.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from compiler.families import INTO_PARTS, Work
from compiler.graph.ir import SIZES, Kernel, product
from compiler.graph.network import Network, count, plain
from compiler.program.statements import Statements

CAT = "aten.cat.default"
MOST_COPIED = 1  # parts of a concatenation
ALIGNED = 16  # bytes: what kernels may read and write at once, from the first element of a tensor on


@dataclass(frozen=True)
class Place:
    """Of a part: channels `start` to `end` of the concatenation `whole`."""

    whole: str
    start: int
    end: int

    def of(self, whole: str) -> str:
        """As an expression over the variable of the whole."""
        return f"{whole}[:, {self.start}:{self.end}]"

    def taken(self, network: Network, part: str, work: Work) -> bool:
        """Whether the kernel can write the part there; then it does."""
        stores = [store for store in work.tail.kernel.stores if work.tail.kernel.arguments[store.access.argument].value == part]
        image, sizes = work.tail.groups[0], work.tail.kernel.sizes
        shape, whole = network.spec(part).shape, network.spec(self.whole)
        if len(stores) != 1 or len(image) != 1 or sizes[image[0]] != shape[0]:
            return False
        if work.match.family not in INTO_PARTS:
            return False
        argument, access = work.tail.kernel.arguments[stores[0].access.argument], stores[0].access
        loads = [op.name for op in work.tail.kernel.ops.values() if op.access.argument == argument.name]
        if loads not in ([], [work.tail.load]) or access.offset or access.strides[image[0]] not in (0, product(shape[1:])):
            return False
        access.strides = tuple(product(whole.shape[1:]) if axis == image[0] else stride for axis, stride in enumerate(access.strides))
        argument.elements = count(whole)
        return True


@dataclass(frozen=True)
class Stack:
    """Concatenations that begin alike, the shortest first: `members` lie in the memory of the last. `places` of the parts that are computed there."""

    members: tuple[str, ...]
    places: dict[str, Place]

    @property
    def whole(self) -> str:
        return self.members[-1]


class Joins:
    """Those of one forward, and what of their parts and memory is there already. `libraries`: operators that no kernel computes; `written`: whether
    a kernel of `INTO_PARTS` makes a value; `strided`: whether all that read a concatenation can do so by another stride."""

    def __init__(self, statements: Statements, libraries: Collection[str], written: Callable[[str], bool], strided: Callable[[str], bool]):
        self.statements, self.network = statements, statements.network
        found = stacks(self.network, libraries, written, strided)
        self.stack_of = {name: stack for stack in found for name in stack.members}
        self.places = {part: place for stack in found for part, place in stack.places.items()}
        self.wholes: set[str] = set()  # whose memory is there before they are
        self.filled: set[Place] = set()  # in which their part is
        self.beginnings: set[str] = set()  # concatenations that are read as the beginning of a longer one

    def taken(self, names: Collection[str], work: Work) -> list[str]:
        """Those of the values of a kernel that it now writes where they belong."""
        return [name for name in names if name in self.places and self.places[name].taken(self.network, name, work)]

    def place(self, part: str) -> None:
        """A part as a piece of the whole's memory."""
        place, statements = self.places[part], self.statements
        if place.whole not in self.wholes:
            statements.allocate(place.whole)
            self.wholes.add(place.whole)
        variable = statements.fresh(part)
        statements.put(f"{variable} = {place.of(statements.variables[place.whole])}")
        statements.variables[part] = variable
        self.filled.add(place)

    def begun(self, name: str) -> bool:
        """Whether the memory of a concatenation is there, so that only the rest of it is to be copied."""
        return name in self.stack_of and self.stack_of[name].whole in self.wholes

    def join(self, name: str) -> str:
        """What is left of a concatenation that has `begun`; what came of it in words."""
        stack, statements, left = self.stack_of[name], self.statements, 0
        whole = statements.variables[stack.whole]
        for part, place in spans(self.network, name, stack.whole):
            if place not in self.filled:
                statements.put(f"{place.of(whole)}.copy_({statements.value(part)})")
                self.filled.add(place)
                left += 1
        if name != stack.whole:
            variable = statements.fresh(name)
            statements.put(f"{variable} = {Place(stack.whole, 0, self.network.spec(name).shape[1]).of(whole)}")
            statements.variables[name] = variable
            self.beginnings.add(name)
        return "its parts are computed where they belong" + (f", but for {left}" if left else "")

    def restride(self, kernel: Kernel) -> None:
        """The kernel reads beginnings of longer concatenations where they lie; what it cannot read so is copied."""
        for argument in kernel.arguments.values():
            if argument.value not in self.beginnings:
                continue
            shape, longer = self.network.spec(argument.value).shape, self.network.spec(self.stack_of[argument.value].whole).shape
            if not restride(kernel, argument.name, shape[0], product(shape[1:]), product(longer[1:])):
                dense = self.statements.fresh(f"{argument.value}_dense")
                self.statements.put(f"{dense} = {self.statements.variables[argument.value]}.contiguous()")
                self.statements.variables[argument.value] = dense
                self.beginnings.discard(argument.value)
            elif product(longer) >= 2**31:  # so far its indices reach
                argument.elements = product(longer)


def stacks(network: Network, concatenations: Collection[str], written: Callable[[str], bool], strided: Callable[[str], bool]) -> list[Stack]:
    """A part is computed in its place where nothing but these concatenations reads it and it begins where kernels may write. No stack of which more
    than one part would be left, or more than half of the bytes: each is a copy of its own."""
    found = []
    for names in _alike(network, concatenations):
        whole = network.spec(names[-1])
        inner = product(whole.shape[2:]) * SIZES[whole.dtype]
        if len(names) > 1 and (not all(map(strided, names[:-1])) or whole.shape[1] * inner % ALIGNED):
            continue
        parts, own = parts_of(network, names[-1]), {}
        for part, place in spans(network, names[-1], names[-1]):
            free = set(network.users[part]) <= set(names) and not network.escapes(part) and parts.count(part) == 1
            if free and written(part) and network.spec(part).dtype == whole.dtype and place.start * inner % ALIGNED == 0:
                own[part] = place
        if len(parts) - len(own) <= MOST_COPIED and 2 * sum(place.end - place.start for place in own.values()) >= whole.shape[1]:
            found.append(Stack(tuple(names), own))
    return found


def parts_of(network: Network, name: str) -> list[str]:
    return [value["ref"] for value in network.nodes[name].args[0]]


def spans(network: Network, name: str, whole: str) -> Iterator[tuple[str, Place]]:
    """The parts of a concatenation and where they lie in `whole`, which begins with it."""
    start = 0
    for part in parts_of(network, name):
        end = start + network.spec(part).shape[1]
        yield part, Place(whole, start, end)
        start = end


def _alike(network: Network, concatenations: Collection[str]) -> list[list[str]]:
    """Concatenations along axis 1 by what they begin with, each list from the shortest to the longest. Where one does not go on as the others do, all
    stand for themselves."""
    by_first: dict[str, list[str]] = {}
    for name in concatenations:
        node = network.nodes[name]
        rank = len(node.outputs[0].shape) if node.op == CAT else 0
        if rank >= 3 and plain(node.args[1] if len(node.args) > 1 else 0) % rank == 1:
            by_first.setdefault(parts_of(network, name)[0], []).append(name)
    found = []
    for names in by_first.values():
        names.sort(key=lambda name: len(parts_of(network, name)))
        lists = [parts_of(network, name) for name in names]
        together = all(longer[: len(shorter)] == shorter and longer != shorter for shorter, longer in zip(lists, lists[1:], strict=False))
        found += [names] if together else [[name] for name in names]
    return found


def restride(kernel: Kernel, argument: str, batch: int, shorter: int, longer: int) -> bool:
    """Has a kernel read a concatenation by another stride from image to image. False, with nothing changed, where its axes do not tell images."""
    accesses = [access for access in kernel.accesses() if access.argument == argument]
    axes = [[axis for axis, stride in enumerate(access.strides) if stride == shorter and kernel.sizes[axis] == batch] for access in accesses]
    for access, own in zip(accesses, axes, strict=True):
        others = sum(stride * (size - 1) for axis, (stride, size) in enumerate(zip(access.strides, kernel.sizes, strict=True)) if axis not in own)
        if access.index or len(own) != 1 or access.offset + others >= shorter:  # another axis goes from image to image as well
            return False
    for access, own in zip(accesses, axes, strict=True):
        access.strides = tuple(longer if axis == own[0] else stride for axis, stride in enumerate(access.strides))
    return True
