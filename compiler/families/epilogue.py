"""Pointwise operators around an anchor, printed as statements in a family's kernel: a tail on its accumulator, a prologue on its loads.

In the IR, both are ordinary elementwise kernels over the shape of one tensor. For a tail, this tensor is the anchor's result, which the IR kernel
loads with identity strides; for a prologue, it is one of the inputs. A family prints both over its own index variables and replaces the load of the
result with the accumulator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from compiler.graph.ir import FLOATS, Access, Argument, Kernel, Op, Store, product
from compiler.graph.layout import contiguous_strides
from compiler.graph.network import Network
from compiler.kernel.builder import Builder, Refused
from compiler.kernel.expressions import C_TYPES, Expressions, address, constant
from compiler.kernel.fuse import emit_members, read_outside
from compiler.kernel.naming import rename_arguments
from compiler.kernel.text import known, width

LONG = 2**31  # tensors with this many elements or more need 64-bit indices


class ShapedBuilder(Builder):
    """A builder for a given domain shape that keeps every axis separate and refuses reductions."""

    def __init__(self, network: Network, members: list[str], shape: tuple[int, ...]):
        self.wanted = shape
        super().__init__(network, members)

    def _domain(self) -> None:
        if self.reductions or self.placings:
            raise Refused("a reduction, or sums at computed places, are a kernel of their own")
        if product(self.wanted) == 0:
            raise Refused("a tensor is empty")
        self.shape = self.wanted
        self.sizes, self.outer, self.inner = list(self.shape), [], list(range(len(self.shape)))
        self.parts = [(axis,) for axis in self.inner]
        self.full = tuple(self.parts)


@dataclass
class Pointwise:
    """`kernel` over `groups` of axes. Each group is one index variable of the family, and its axes are merged if every access allows it."""

    kernel: Kernel
    groups: list[list[int]]

    def variables(self, texts: list[str]) -> dict[int, str]:
        """Returns an expression for each axis, computed from the expressions of the groups."""
        found: dict[int, str] = {}
        wide = any(argument.elements >= LONG for argument in self.kernel.arguments.values())
        for text, axes in zip(texts, self.groups, strict=True):
            text = text if text.isidentifier() or text.isdigit() or _wrapped(text) else f"({text})"
            left = product(self.kernel.sizes[axis] for axis in axes)
            for at, axis in enumerate(axes):
                left //= self.kernel.sizes[axis]
                part = text if left == 1 else f"{text} / {known(left)}"
                part = part if at == 0 else f"{part} % {known(self.kernel.sizes[axis])}"
                part = f"({part})" if " " in part and not _wrapped(part) else part
                found[axis] = f"(long){part}" if wide and part != "0" else part
        return found

    def declare(self, printer: Expressions, skip: str = "") -> list[str]:
        """Declares a variable for each expression that is long or used more than once; the other expressions are printed where they are used."""
        lines = []
        uses: dict[str, int] = {}
        for name in [a for op in self.kernel.ops.values() for a in _reads(op)] + [store.op for store in self.kernel.stores]:
            uses[name] = uses.get(name, 0) + 1
        for op in self.kernel.ops.values():
            if op.name in printer.known:
                continue
            text = printer.expression(op)
            if op.kind == "const":
                printer.known[op.name] = constant(op.attr, op.dtype)
            elif uses.get(op.name, 0) > 1 or width(text) > 72:
                lines.append(f"const {C_TYPES[op.dtype]} {op.name} = {text};")
                printer.known[op.name] = op.name
        return lines


@dataclass
class Tail(Pointwise):
    """Operators after the anchor. `result` is the argument that represents the anchor's value, `load` the operation that reads it."""

    result: str
    load: str

    @property
    def arguments(self) -> list[Argument]:
        """The pointers that the tail needs. The pointer to the anchor's value is included only if that value is stored."""
        return [a for a in self.kernel.arguments.values() if a.name != self.result or a.written]

    @property
    def plain(self) -> bool:
        """True if the tail only stores the anchor's value."""
        return set(self.kernel.ops) == {self.load} and len(self.kernel.stores) == 1

    def statements(self, functions: dict[str, str], texts: list[str], accumulator: str, known: dict[str, str] | None = None) -> list[str]:
        """Returns lines that compute and store everything that depends on `accumulator`, at the position that `texts` specifies (one text per group).
        `known` maps loads of the tail to variables that already hold the loaded values."""
        variables = self.variables(texts)
        printer = Expressions(self.kernel, functions, variables, {self.load: accumulator, **(known or {})})
        lines = self.declare(printer)
        for store in self.kernel.stores:
            lines.append(f"{store.access.argument}[{address(self.kernel, store.access, variables)}] = {printer.text(store.op)};")
        return lines

    def loads(self, varying: set[int]) -> list[Op]:
        """Returns the loads that depend only on the groups in `varying`: (1,) selects vectors over index variable 1, and () selects scalars."""
        axes = {axis for group in varying for axis in self.groups[group]}
        loads = [op for op in self.kernel.ops.values() if op.kind == "load" and op.name != self.load]
        return [op for op in loads if all(axis in axes for axis, stride in enumerate(op.access.strides) if stride)]


@dataclass
class Prologue(Pointwise):
    """Operators that compute an input. `result` is the operation that yields an element of the input."""

    result: str

    def statements(self, functions: dict[str, str], texts: list[str], into: str) -> list[str]:
        """Returns lines that end with the declaration of `into`, the input's element at the position that `texts` specifies."""
        printer = Expressions(self.kernel, functions, self.variables(texts), {})
        lines = self.declare(printer)
        return [*lines, f"const float {into} = {printer.text(self.result)};"]


def build_tail(
    network: Network,
    value: str,
    members: list[str],
    covered: set[str],
    groups: tuple[int, ...] = (),
    reserved: Iterable[str] = (),
    any_layout: bool = False,
) -> Tail:
    """Builds the tail from `members` (topologically sorted, may be empty), applied to the anchor's `value`. `covered` holds all operators of the
    kernel. `groups` gives the number of axes of each index variable (default: one each). `any_layout` means that the value may be in channels-last
    layout. Raises `Refused`."""
    spec = network.spec(value)
    builder = ShapedBuilder(network, members, tuple(spec.shape))
    builder.inside = set(members)
    full = builder.full
    load = builder.value(value, full)
    argument = builder.argument(value)
    builder.accumulated = argument.value
    emit_members(builder)
    for member in members:
        if member in builder.values and read_outside(network, member, covered):
            builder.store(member)
    identity = network.layouts[value].strides if any_layout else contiguous_strides(tuple(spec.shape))
    for op in list(builder.kernel.ops.values()):
        if op.access is None or op.access.argument != argument.name:
            continue
        straight = all(size == 1 or a == b for size, a, b in zip(spec.shape, op.access.strides, identity, strict=True))
        if op.kind != "load" or not straight or op.access.offset:
            raise Refused("the result is read at other positions than where it is computed")
        if op.name != load:  # the loads differ only along an axis of size one, so they are the same
            _replace(builder.kernel, op.name, load)
    if read_outside(network, value, covered):
        argument.written = True
        builder.kernel.stores.insert(0, Store(load, "full", Access(argument.name, builder.kernel.ops[load].access.strides)))
    if not builder.kernel.stores:
        raise Refused("nothing is stored")
    kernel = _finish(builder.kernel, {store.op for store in builder.kernel.stores} | {load})
    merged = _merge_axes(kernel, groups or (1,) * len(spec.shape))
    found = Tail(kernel, merged, argument.name, load)
    names, ops = rename_arguments(kernel, network, set(reserved))
    found.result, found.load = names[found.result], ops.get(load, load)
    return found


def build_prologue(
    network: Network,
    value: str,
    members: list[str],
    groups: tuple[int, ...] = (),
    reserved: Iterable[str] = (),
    loaded: Collection[str] = (),
    apart: bool = False,
) -> Prologue:
    """Builds the prologue that computes `value`, an input that only the anchor reads. `value` is the last of `members`. Filled tensors in `loaded`
    are read like others. With `apart`, equal numbers remain separate operations, so prologues that differ only in numbers have the same operations.
    Raises `Refused`."""
    spec = network.spec(value)
    builder = ShapedBuilder(network, members, tuple(spec.shape))
    builder.loaded, builder.apart = loaded, apart
    if spec.dtype not in FLOATS:
        raise Refused(f"an input of {spec.dtype}")
    emit_members(builder)
    result = builder.value(value, builder.full)
    kernel = _finish(builder.kernel, {result})
    merged = _merge_axes(kernel, groups or (1,) * len(spec.shape))
    _, ops = rename_arguments(kernel, network, set(reserved))
    return Prologue(kernel, merged, ops.get(result, result))


def _finish(kernel: Kernel, wanted: set[str]) -> Kernel:
    """Removes unused operations and arguments."""
    for op in reversed(list(kernel.ops.values())):
        if op.name in wanted:
            wanted.update(_reads(op))
    kernel.ops = {name: op for name, op in kernel.ops.items() if name in wanted}
    used = {access.argument for access in kernel.accesses()}
    kernel.arguments = {name: argument for name, argument in kernel.arguments.items() if name in used}
    return kernel


def _replace(kernel: Kernel, name: str, by: str) -> None:
    del kernel.ops[name]
    for op in kernel.ops.values():
        op.args = type(op.args)(by if arg == name else arg for arg in op.args)
    for store in kernel.stores:
        store.op = by if store.op == name else store.op


def _reads(op: Op) -> list[str]:
    return list(op.args)


def _merge_axes(kernel: Kernel, groups: tuple[int, ...]) -> list[list[int]]:
    """Merges neighbouring axes of a group where every access can treat them as a single axis. Returns the new axes of each group."""
    if sum(groups) != len(kernel.sizes):
        raise Refused("the axes of the result are not those of the kernel")
    coords = {op.attr for op in kernel.ops.values() if op.kind == "coord"}
    accesses = kernel.accesses()
    runs: list[list[int]] = []
    cut: list[list[int]] = []
    first = 0
    for length in groups:
        own: list[list[int]] = []
        for axis in range(first, first + length):
            joins = own and not coords & {own[-1][-1], axis}
            if joins and all(a.strides[own[-1][-1]] == a.strides[axis] * kernel.sizes[axis] for a in accesses):
                own[-1].append(axis)
            else:
                own.append([axis])
        cut.append(list(range(len(runs), len(runs) + len(own))))
        runs += own
        first += length
    for access in accesses:
        access.strides = tuple(access.strides[run[-1]] for run in runs)
    for op in kernel.ops.values():
        if op.kind == "coord":
            op.attr = next(at for at, run in enumerate(runs) if op.attr in run)
    kernel.sizes = [product(kernel.sizes[axis] for axis in run) for run in runs]
    kernel.inner = list(range(len(runs)))
    return cut


def _wrapped(text: str) -> bool:
    return text.startswith("(") and text.endswith(")") and text.count("(") == 1
