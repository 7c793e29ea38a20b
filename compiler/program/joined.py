"""Concatenations along the channel axis whose parts are computed in place. A convolution writes its images directly into the memory of the whole
concatenation, with the image stride of the whole, so no copy is needed. Parts computed by other operators are copied there once.

Concatenations that begin with the same parts, as in a dense block, are prefixes of the longest one, and kernels read the shorter ones with its
stride.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from compiler.families import INTO_PARTS, Work
from compiler.graph.ir import SIZES, Kernel, product
from compiler.graph.network import Network, count, plain
from compiler.program.statements import Statements

CAT = "aten.cat.default"
MOST_COPIED = 1  # copied parts per concatenation
ALIGNED = 16  # alignment of a tensor's start, in bytes, that kernels assume for vector accesses


@dataclass(frozen=True)
class Place:
    """The place of a part, which is channels `start` to `end` of the concatenation `whole`."""

    whole: str
    start: int
    end: int

    def of(self, whole: str) -> str:
        """Returns an expression for the place in terms of the variable of the whole."""
        return f"{whole}[:, {self.start}:{self.end}]"

    def taken(self, network: Network, part: str, work: Work) -> bool:
        """Makes the kernel write the part to its place if possible. Returns whether that succeeded."""
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
    """Concatenations that begin with the same parts, from the shortest to the longest. All `members` share the memory of the last member. `places`
    lists the parts that are computed in place."""

    members: tuple[str, ...]
    places: dict[str, Place]

    @property
    def whole(self) -> str:
        return self.members[-1]


class Joins:
    """Tracks the joined concatenations of one forward, and which of their buffers and parts already exist. `libraries` lists the operators that no
    kernel computes, `written` reports whether a kernel of `INTO_PARTS` produces a value, and `strided` reports whether all readers of a concatenation
    can use a different stride."""

    def __init__(self, statements: Statements, libraries: Collection[str], written: Callable[[str], bool], strided: Callable[[str], bool]):
        self.statements, self.network = statements, statements.network
        found = stacks(self.network, libraries, written, strided)
        self.stack_of = {name: stack for stack in found for name in stack.members}
        self.places = {part: place for stack in found for part, place in stack.places.items()}
        self.wholes: set[str] = set()  # concatenations whose memory has already been allocated
        self.filled: set[Place] = set()  # places that already contain their part
        self.beginnings: set[str] = set()  # concatenations that are read as a prefix of a longer one

    def taken(self, names: Collection[str], work: Work) -> list[str]:
        """Returns the values that a kernel now writes in place."""
        return [name for name in names if name in self.places and self.places[name].taken(self.network, name, work)]

    def place(self, part: str) -> None:
        """Defines a part as a slice of the memory of the whole."""
        place, statements = self.places[part], self.statements
        if place.whole not in self.wholes:
            statements.allocate(place.whole)
            self.wholes.add(place.whole)
        variable = statements.fresh(part)
        statements.put(f"{variable} = {place.of(statements.variables[place.whole])}")
        statements.variables[part] = variable
        self.filled.add(place)

    def begun(self, name: str) -> bool:
        """Returns whether the memory of a concatenation already exists, so that only the missing parts are copied."""
        return name in self.stack_of and self.stack_of[name].whole in self.wholes

    def join(self, name: str) -> str:
        """Completes a concatenation that has `begun`, and returns a description of the result."""
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
        """Makes the kernel read prefixes of longer concatenations in place. Prefixes that it cannot read in this way are copied."""
        for argument in kernel.arguments.values():
            if argument.value not in self.beginnings:
                continue
            shape, longer = self.network.spec(argument.value).shape, self.network.spec(self.stack_of[argument.value].whole).shape
            if not restride(kernel, argument.name, shape[0], product(shape[1:]), product(longer[1:])):
                dense = self.statements.fresh(f"{argument.value}_dense")
                self.statements.put(f"{dense} = {self.statements.variables[argument.value]}.contiguous()")
                self.statements.variables[argument.value] = dense
                self.beginnings.discard(argument.value)
            elif product(longer) >= 2**31:  # its indices must cover this range
                argument.elements = product(longer)


def stacks(network: Network, concatenations: Collection[str], written: Callable[[str], bool], strided: Callable[[str], bool]) -> list[Stack]:
    """Returns the stacks that are worth building. A part is computed in place if only the stack's concatenations read it and it starts at an aligned
    address. A stack is rejected if more than one part or more than half of its bytes would have to be copied."""
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
    """Yields the parts of a concatenation and their places in `whole`, which begins with the concatenation."""
    start = 0
    for part in parts_of(network, name):
        end = start + network.spec(part).shape[1]
        yield part, Place(whole, start, end)
        start = end


def _alike(network: Network, concatenations: Collection[str]) -> list[list[str]]:
    """Groups the concatenations along axis 1 by their first part and orders each list from the shortest to the longest. If any concatenation of a
    group does not extend the previous one, each gets a separate list."""
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
    """Makes a kernel read a concatenation with a different image stride. Returns False and changes nothing if the kernel's axes do not separate
    images."""
    accesses = [access for access in kernel.accesses() if access.argument == argument]
    axes = [[axis for axis, stride in enumerate(access.strides) if stride == shorter and kernel.sizes[axis] == batch] for access in accesses]
    for access, own in zip(accesses, axes, strict=True):
        others = sum(stride * (size - 1) for axis, (stride, size) in enumerate(zip(access.strides, kernel.sizes, strict=True)) if axis not in own)
        if access.index or len(own) != 1 or access.offset + others >= shorter:  # another axis also steps from image to image
            return False
    for access, own in zip(accesses, axes, strict=True):
        access.strides = tuple(longer if axis == own[0] else stride for axis, stride in enumerate(access.strides))
    return True
