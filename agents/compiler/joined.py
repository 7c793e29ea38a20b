"""Concatenations along the channels whose parts are computed where they belong: a convolution writes its images into the whole's memory, with the
whole's stride from image to image, and nothing is copied. A part that something else computes is copied there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from agents.compiler.families import Work
from agents.compiler.ir import SIZES, product
from agents.compiler.network import Network, count, plain

CAT = "aten.cat.default"
FAMILIES = ("conv", "half-conv", "depthwise")  # whose tails write each element where its strides say
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
        if work.match.family not in FAMILIES:
            return False
        argument, access = work.tail.kernel.arguments[stores[0].access.argument], stores[0].access
        loads = [op.name for op in work.tail.kernel.ops.values() if op.access is not None and op.access.argument == argument.name]
        if loads not in ([], [work.tail.load]) or access.offset or access.strides[image[0]] not in (0, product(shape[1:])):
            return False
        access.strides = tuple(product(whole.shape[1:]) if axis == image[0] else stride for axis, stride in enumerate(access.strides))
        argument.elements = count(whole)
        return True


def places(network: Network, concatenations: Collection[str], written: Callable[[str], bool]) -> dict[str, Place]:
    """Of the parts that a kernel of `FAMILIES` makes (`written`), that nothing else reads, and that begin where kernels may write. None of a
    concatenation of which more than one part would be left, or more than half of the bytes: each is a copy of its own."""
    found: dict[str, Place] = {}
    for name in concatenations:
        node = network.nodes[name]
        whole = node.outputs[0]
        if node.op != CAT or len(whole.shape) < 3 or plain(node.args[1] if len(node.args) > 1 else 0) % len(whole.shape) != 1:
            continue
        start, inner = 0, product(whole.shape[2:]) * SIZES[whole.dtype]
        parts = [value["ref"] for value in node.args[0]]
        own: dict[str, Place] = {}
        for part in parts:
            end = start + network.spec(part).shape[1]
            free = network.users[part] == [name] and not network.escapes(part) and parts.count(part) == 1
            if free and written(part) and network.spec(part).dtype == whole.dtype and start * inner % ALIGNED == 0:
                own[part] = Place(name, start, end)
            start = end
        if len(parts) - len(own) <= MOST_COPIED and 2 * sum(place.end - place.start for place in own.values()) >= start:
            found |= own
    return found


def beside(network: Network, whole: str, placed: Collection[str]) -> list[tuple[str, Place]]:
    """Parts that are still to be copied, and where to."""
    start, found = 0, []
    for value in network.nodes[whole].args[0]:
        end = start + network.spec(value["ref"]).shape[1]
        if value["ref"] not in placed:
            found.append((value["ref"], Place(whole, start, end)))
        start = end
    return found
