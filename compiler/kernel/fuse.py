"""One kernel from a set of operators, or the reason why not."""

from __future__ import annotations

from compiler.graph.ir import INNER, Kernel, collapse
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network
from compiler.graph.reductions import BATCH_NORM, reduction, short
from compiler.kernel import pointwise, rowwise
from compiler.kernel.builder import CONSTANTS, Builder, Refused
from compiler.kernel.loop_order import ordered


def read_outside(network: Network, name: str, inside: set[str]) -> bool:
    """Whether the memory of `name` is needed by an operator outside the set, or leaves forward."""
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
    """The kernel that computes `members` (topologically sorted) and stores what is read outside; raises `Refused`."""
    builder = Builder(network, members, name, title)
    emit_members(builder)
    for member in members:
        if member in builder.values and not is_tuple(network, member) and read_outside(network, member, builder.inside):
            builder.store(member)
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
    """Orders the axes by the steps of the largest tensor that has them all, so that neighbours in memory are walked through one after another."""
    axes = [axis for axis, size in enumerate(kernel.sizes) if size > 1]
    whole = [access for access in kernel.accesses() if all(access.strides[axis] for axis in axes)]
    if whole:
        steps = max(whole, key=lambda access: kernel.arguments[access.argument].elements).strides
        for order in (kernel.outer, kernel.inner):
            order.sort(key=lambda axis: -steps[axis] if kernel.sizes[axis] > 1 else -sum(steps))


def emit_members(builder: Builder) -> None:
    """The operations of every operator of the builder, without stores."""
    network, members = builder.network, builder.members
    for member in builder.reductions:
        rowwise.declare(builder, network.nodes[member])
    builder.infer_maps()
    for member in members:
        node = network.nodes[member]
        if member in builder.values:
            continue
        if member in builder.reductions:
            rowwise.emit(builder, node)
        elif node.op == "getitem":
            if node.args[1] != 0:
                raise Refused("only the first result of this operator is covered")
            builder.values[member] = builder.value(node.args[0]["ref"], builder.maps[member])
        else:
            builder.values[member] = pointwise.emit(builder, node)


def is_tuple(network: Network, name: str) -> bool:
    users = network.users[name]
    return bool(users) and all(network.nodes[user].op == "getitem" for user in users) and len(network.nodes[name].outputs) > 1


def fusible(network: Network, name: str) -> bool:
    """Covered at all: a pointwise operator or a reduction (not a view, a constant, or the library's)."""
    node = network.nodes[name]
    if network.is_view(name) or short(node) in CONSTANTS:
        return False
    return reduction(network, node) is not None or short(node) in pointwise.NAMES


def unit(network: Network, name: str) -> list[str]:
    """`name` with the results that are taken from it."""
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
