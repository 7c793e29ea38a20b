"""Computes how many bytes of a tensor a kernel or an operator reads or writes: the bytes in the part that its domain covers or, for a gathered
tensor, the bytes of the gathered elements."""

from __future__ import annotations

import math
from collections.abc import Collection

from compiler.graph.ir import Access, Argument, Kernel, product
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network, size_bytes
from compiler.graph.values import refs
from verifier.gathering import gathered_bytes, sectors
from verifier.graph import Node


def touched_bytes(network: Network, kernel: Kernel, argument: Argument) -> int:
    """Returns the number of bytes of a tensor that a kernel touches, counting each byte once."""
    size = size_bytes(network.spec(argument.value))
    accesses = [access for access in kernel.accesses() if access.argument == argument.name]
    plain = [access for access in accesses if not access.index]
    reach = max((_reach(kernel, access) for access in plain), default=0) * len({(access.offset, access.strides) for access in plain})
    item = size // max(argument.elements, 1)
    gathered = sum(_gathered(kernel, access, item) for access in accesses if access.index)
    return min(size, int(size * min(1.0, reach / max(argument.elements, 1))) + gathered)


def _reach(kernel: Kernel, access: Access) -> int:
    return product(size for size, stride in zip(kernel.sizes, access.strides, strict=True) if stride)


def _gathered(kernel: Kernel, access: Access, item: int) -> int:
    """Returns the size in bytes of the sectors that contain the gathered elements, assuming a different position for every run of contiguous
    elements."""
    run = kernel.sizes[-1] if kernel.sizes and access.strides[-1] == 1 else 1
    return sectors(product(kernel.sizes) // max(run, 1), run * item)


def read_by(network: Network, node: Node, name: str) -> int:
    """Returns the number of bytes that an operator reads from its argument `name`, a tensor."""
    spec = network.spec(name)
    size = size_bytes(spec)
    first = node.args[0] if node.args else None
    if not node.outputs or first != {"ref": name} or list(refs([node.args, list(node.kwargs.values())])).count(name) > 1:
        return size
    found = gathered_bytes(node.op, node.args, spec.shape, size // max(math.prod(spec.shape), 1), node.outputs[0].shape)
    return size if found is None else found


def read_within(network: Network, base: str, members: Collection[str]) -> int:
    """Returns the number of bytes of `base` that the operators in `members` read, at most the size of the tensor. Views themselves read nothing."""
    size, total = size_bytes(network.spec(base)), 0
    for member in members:
        node = network.nodes[member]
        read = [name for name in refs([node.args, list(node.kwargs.values())]) if network.base(name) == base]
        if read and not network.is_view(member) and node.op not in SPLITS:
            total += sum(read_by(network, node, name) for name in dict.fromkeys(read))
        if total >= size:
            return size
    return total
