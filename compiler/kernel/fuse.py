"""Builds one kernel from a set of operators, or explains why that is not possible."""

from __future__ import annotations

from compiler.graph.constants import CONSTANTS
from compiler.graph.ir import INNER, Kernel, collapse
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network
from compiler.graph.placing import placing
from compiler.graph.reductions import BATCH_NORM, reduction, short
from compiler.kernel import activations, division, indexing, pointwise, rowwise
from compiler.kernel import placing as placed
from compiler.kernel.builder import Builder, Refused
from compiler.kernel.loop_order import ordered
from compiler.kernel.lowering import is_lowered, lower

LOWERED_IN = (activations, division, indexing, pointwise)  # importing these modules registers their operators


def read_outside(network: Network, name: str, inside: set[str]) -> bool:
    """Returns whether an operator outside the set needs the memory of `name`, or forward returns `name`."""
    if name in network.results:
        return True
    for user in network.users[name]:
        if user in inside:
            continue
        if network.is_view(user) or network.nodes[user].op in SPLITS:
            if read_outside(network, user, inside):
                return True
        else:
            return True
    return False


def build(network: Network, members: list[str], name: str = "kernel", title: str = "") -> Kernel:
    """Builds the kernel that computes `members` (topologically sorted) and stores the values that other operators read. Raises `Refused`."""
    builder = Builder(network, members, name, title)
    emit_members(builder)
    for member in members:
        if member in builder.values and not is_tuple(network, member) and read_outside(network, member, builder.inside):
            builder.store(member)
    for member in builder.placings:
        placed.store(builder, member)
    if not builder.kernel.stores:
        raise Refused("nothing is stored")
    _drop_unused(builder.kernel)
    if network.last:
        follow_memory(builder.kernel)
    kernel = collapse(ordered(builder.kernel))
    if len(kernel.inner) > len(INNER):
        raise Refused(f"it rearranges more than {len(INNER)} axes")
    return kernel


def follow_memory(kernel: Kernel) -> None:
    """Orders the axes by the strides of the largest tensor that spans all axes, so that consecutive iterations access neighbouring memory."""
    axes = [axis for axis, size in enumerate(kernel.sizes) if size > 1]
    whole = [access for access in kernel.accesses() if all(access.strides[axis] for axis in axes)]
    if whole:
        steps = max(whole, key=lambda access: kernel.arguments[access.argument].elements).strides
        for order in (kernel.outer, kernel.inner):
            order.sort(key=lambda axis: -steps[axis] if kernel.sizes[axis] > 1 else -sum(steps))


def emit_members(builder: Builder) -> None:
    """Emits the operations of all operators of the builder, without stores."""
    network, members = builder.network, builder.members
    for member in builder.reductions:
        rowwise.declare(builder, network.nodes[member])
    builder.infer_maps()
    for member in members:
        node = network.nodes[member]
        if member in builder.placings:
            continue
        if member in builder.values:  # emitted together with its batch norm
            pass
        elif member in builder.reductions:
            rowwise.emit(builder, node)
        elif node.op == "getitem":
            if node.args[1] != 0:
                raise Refused("only the first result of this operator is covered")
            builder.values[member] = builder.value(node.args[0]["ref"], builder.maps[member])
        else:
            builder.values[member] = lower(builder, node)
        builder.as_decided(member)


def is_tuple(network: Network, name: str) -> bool:
    users = network.users[name]
    return bool(users) and all(network.nodes[user].op == "getitem" for user in users) and len(network.nodes[name].outputs) > 1


def fusible(network: Network, name: str) -> bool:
    """Returns whether the IR supports the operator at all. It supports pointwise operators and reductions, but not views, constants or library
    operators."""
    node = network.nodes[name]
    if network.is_view(name) or short(node) in CONSTANTS:
        return False
    return reduction(network, node) is not None or is_lowered(node) or placing(network, node) is not None


def unit(network: Network, name: str) -> list[str]:
    """Returns `name` together with the nodes that extract its results."""
    node = network.nodes[name]
    if short(node) in BATCH_NORM | {"_native_batch_norm_legit_no_training"}:
        return [name, *network.users[name]]
    return [name]


def _drop_unused(kernel: Kernel) -> None:
    wanted = {store.op for store in kernel.stores}
    for op in reversed(list(kernel.ops.values())):
        if op.name in wanted:
            wanted.update(op.args)
    kernel.ops = {name: op for name, op in kernel.ops.items() if name in wanted}
    used = {access.argument for access in kernel.accesses()}
    kernel.arguments = {name: argument for name, argument in kernel.arguments.items() if name in used}
