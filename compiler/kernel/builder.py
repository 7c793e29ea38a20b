"""Builds one kernel from a set of operators: its domain, an axis map for each value, scalar operations, loads and stores."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from compiler.graph.constants import CONSTANTS, filled_with, progression
from compiler.graph.ir import FLOAT8, FLOATS, HALVES, Access, Argument, Kernel, Level, Op, Store, in_registers, product
from compiler.graph.layout import SPLITS, contiguous_strides
from compiler.graph.network import Network, count, plain
from compiler.graph.placing import placing
from compiler.graph.reductions import reduction, short
from compiler.kernel.rounding import is_held, rounded
from verifier.graph import Node

SUPPORTED = FLOATS | {"int64", "int32", "bool", "uint8", "int8", "int16"}
READ = SUPPORTED | FLOAT8

Map = tuple[tuple[int, ...], ...]  # for each axis of a tensor, the domain axes that it is composed of; () if it is broadcast


class Refused(Exception):
    """Raised if operators cannot form one kernel; the message explains why."""


class Builder:
    """Builds a kernel. `members` are operator names in topological order."""

    def __init__(self, network: Network, members: list[str], name: str = "kernel", title: str = ""):
        self.network, self.members, self.inside = network, members, set(members)
        self.reductions = {m: r for m in members if (r := reduction(network, network.nodes[m])) is not None}
        self.placings = {m: p for m in members if (p := placing(network, network.nodes[m])) is not None}
        self._domain()
        self.kernel = Kernel(name, title, self.sizes, self.outer, self.inner)
        self.values: dict[str, str] = {}  # graph value -> operation
        self.maps: dict[str, Map] = {}
        self._names: dict[str, int] = {}
        self._loads: dict[tuple[Any, ...], str] = {}
        self._computed: dict[tuple[Any, ...], str] = {}
        self._arguments: dict[str, Argument] = {}  # by graph value
        self.loaded: Collection[str] = ()  # filled tensors that are read like others
        self.apart = False  # whether equal numbers stay operations of their own
        self.accumulated = ""  # the value whose loads are replaced with an unrounded accumulator

    def _domain(self) -> None:
        distinct = set(self.reductions.values())
        scans = {r.scan for r in distinct}
        if len({(r.shape, r.inner, r.splits) for r in distinct}) > 1 or len(scans) > 1:
            raise Refused("they reduce over different axes")
        if distinct:
            found = next(iter(distinct))
            self.shape, splits, inner = found.shape, {axis: sizes for axis, *sizes in found.splits}, found.inner
        else:
            outputs = [self.walked(m) for m in self.members]
            self.shape = max(outputs, key=lambda s: (product(s), len(s)))
            splits, inner = {}, None
        if product(self.shape) == 0:
            raise Refused("a tensor is empty")
        self.sizes: list[int] = []
        self.parts: list[tuple[int, ...]] = []
        self.outer: list[int] = []
        self.inner: list[int] = []
        for axis, size in enumerate(self.shape):
            sizes = splits.get(axis, [size])
            self.parts.append(tuple(range(len(self.sizes), len(self.sizes) + len(sizes))))
            for part, piece in enumerate(sizes):
                (self.inner if inner is None or (axis, part) in inner else self.outer).append(len(self.sizes))
                self.sizes.append(piece)
        self.full: Map = tuple(self.parts)

    def walked(self, name: str) -> tuple[int, ...]:
        """Returns the shape over which operator `name` is computed, which is the shape of its value or of the terms that it stores at computed
        positions."""
        return self.placings[name].shape if name in self.placings else tuple(self.network.spec(name).shape)

    # -- maps ---------------------------------------------------------------------------------------------------------------

    def row_map(self, keep: bool) -> Map:
        """Returns the map of a value with one element per row. With `keep`, reduced axes remain with size 1."""
        entries = [tuple(axis for axis in parts if axis in self.outer) for parts in self.parts]
        dropped = [not entry and any(axis in self.inner for axis in parts) for entry, parts in zip(entries, self.parts, strict=True)]
        return tuple(entry for entry, gone in zip(entries, dropped, strict=True) if keep or not gone)

    def infer_maps(self) -> None:
        """Infers the axis maps: forward from reductions and full-size values, and backward to small values that are broadcast into them."""
        for sweep in range(3):
            order = self.members if sweep % 2 == 0 else list(reversed(self.members))
            for member in order:
                node = self.network.nodes[member]
                if member in self.reductions or member in self.maps:
                    continue
                if member in self.placings:
                    found = self._map_of_terms(member)
                else:
                    found = self._forward_map(node) if sweep % 2 == 0 else self._backward_map(node)
                if found is not None:
                    self.maps[member] = found
        missing = [m for m in self.members if m not in self.maps and m not in self.reductions and self.network.nodes[m].op not in ("getitem",)]
        missing = [m for m in missing if short(self.network.nodes[m]) not in SPLIT_NAMES]
        if missing:
            raise Refused(f"{missing[0]} does not line up with the other values")
        for member, known in self.maps.items():  # x[:, None] - x[None, :] needs two positions along the same axis
            axes = [axis for entry in known for axis in entry]
            if len(axes) != len(set(axes)):
                raise Refused(f"{member} has the same axis twice")

    def _map_of_terms(self, name: str) -> Map | None:
        """Returns the map of values that are stored at computed positions: all elements of the kernel, or one value per row that this kernel
        computes."""
        found = self.placings[name]
        if found.shape == self.shape:
            return self.full
        return self.operand_map(found.terms)

    def _forward_map(self, node: Node) -> Map | None:
        spec = self.network.spec(node.name)
        if spec.shape == self.shape:
            return self.full
        entries: list[tuple[int, ...] | None] = [() if size == 1 else None for size in spec.shape]
        for source in tensor_args(node):
            known = self.operand_map(source)
            if known is None:
                continue
            if len(known) > len(entries):
                return None
            lead = len(entries) - len(known)
            for axis, entry in enumerate(known):
                if entry:
                    if entries[axis + lead] not in (None, (), entry):
                        raise Refused(f"{node.name} lines up with two different axes")
                    entries[axis + lead] = entry
        lined_up = [entry for entry in entries if entry is not None]
        return tuple(lined_up) if len(lined_up) == len(entries) else None

    def _backward_map(self, node: Node) -> Map | None:
        """Infers the map from the first user in this kernel, directly or through views that add, repeat or drop axes of size 1."""
        shape = self.network.spec(node.name).shape
        for user in self.network.users[node.name]:
            if user in self.reductions:  # it reads all elements, so the map of its result says nothing about them
                known = self.full if self._reduced_by(user, node.name) and tuple(shape) == self.shape else None
            elif user in self.inside:
                known = self.maps.get(user)
            elif self.network.is_view(user) and short(self.network.nodes[user]) in ("unsqueeze", "expand", "squeeze", "view"):
                known = self._backward_map(self.network.nodes[user])
                target = self.network.spec(user).shape
                if known is None or [s for s in target if s != 1] != [s for s in shape if s != 1]:
                    continue
                left = iter(entry for entry, size in zip(known, target, strict=True) if size != 1)
                return tuple(() if size == 1 else next(left) for size in shape)
            else:
                continue
            if known is not None and len(known) >= len(shape):
                tail = known[len(known) - len(shape) :]
                return tuple(() if size == 1 else entry for size, entry in zip(shape, tail, strict=True))
        return None

    def _reduced_by(self, user: str, name: str) -> bool:
        argument = self.network.nodes[user].args[0]
        return isinstance(argument, dict) and argument.get("ref") == name

    def operand_map(self, name: str) -> Map | None:
        """Returns the map of a value that this kernel computes (or of a view of it that only adds, drops or repeats axes of size 1), or None for
        other values."""
        if name in self.placings:
            raise Refused(f"{name} is read once all of it is there")
        if name in self.maps:
            return self.maps[name]
        node = self.network.nodes.get(name)
        if node is None or not self.network.is_view(name) or node.op == "getitem" or not self.computed_here(name):
            return None
        source = self.operand_map(node.args[0]["ref"])
        if source is None:
            return None
        kind, args = short(node), [plain(a) for a in node.args[1:]]
        rank = len(source)
        if kind == "unsqueeze":
            axis = args[0] % (rank + 1)
            return source[:axis] + ((),) + source[axis:]
        if kind == "expand":
            return ((),) * (len(args[0]) - rank) + source
        if kind == "squeeze":
            shape = self.network.spec(node.args[0]["ref"]).shape
            named = range(rank) if not args else [args[0]] if isinstance(args[0], int) else args[0]
            return tuple(entry for axis, entry in enumerate(source) if axis not in {a % rank for a in named} or shape[axis] != 1)
        if kind in ("alias", "detach"):
            return source
        if kind in ("view", "_unsafe_view", "reshape") and self.network.spec(name).shape == self.network.spec(node.args[0]["ref"]).shape:
            return source
        if kind in ("view", "_unsafe_view", "reshape"):
            shape, target = self.network.spec(node.args[0]["ref"]).shape, self.network.spec(name).shape
            kept = [entry for entry, size in zip(source, shape, strict=True) if size != 1]
            if [size for size in shape if size != 1] == [size for size in target if size != 1]:
                left = iter(kept)
                return tuple(() if size == 1 else next(left) for size in target)
        raise Refused(f"{name} rearranges a value of the same kernel")

    def computed_here(self, name: str) -> bool:
        node = self.network.nodes.get(name)
        if name in self.inside:
            return True
        return node is not None and self.network.is_view(name) and node.op != "getitem" and self.computed_here(node.args[0]["ref"])

    # -- operations ---------------------------------------------------------------------------------------------------------

    def fresh(self, hint: str, taken: Collection[str]) -> str:
        """Returns a name that is not in `taken`, with a number appended if `hint` was used before. Graph operators have numbered names too, so a name
        such as `mul_2` may be taken."""
        hint = RESERVED.get(hint, hint)
        while True:
            self._names[hint] = self._names.get(hint, 0) + 1
            name = hint if self._names[hint] == 1 else f"{hint}_{self._names[hint]}"
            if name not in taken:
                return name

    def op(self, kind: str, *args: str, dtype: str = "float32", hint: str = "", attr: Any = None, access: Access | None = None) -> str:
        level: Level = "full" if any(self.kernel.ops[a].level == "full" for a in args) else "row"
        if kind == "reduce":
            level = "row"
        elif kind == "scan":
            level = "full"
        if access is not None and any(access.strides[axis] for axis in self.inner):
            level = "full"
        if kind == "coord" and attr in self.inner:
            level = "full"
        known = self._computed.get((kind, args, dtype, attr))
        if known is not None and kind not in ("reduce", "scan", "load", "gather", "const", "coord"):
            return known  # common subexpressions are computed only once
        name = self.fresh(hint or {"reduce": attr, "load": "x"}.get(kind, kind), self.kernel.ops)
        self._computed.setdefault((kind, args, dtype, attr), name)
        self.kernel.ops[name] = Op(name, kind, tuple(args), dtype, level, attr, access or Access("", ()))
        return name

    def const(self, value: Any, dtype: str = "float32") -> str:
        if dtype == "float32":
            value = float(value)
        elif dtype == "bool":
            value = bool(value)
        else:
            value = int(value)
        key = ("const", dtype, repr(value))
        if key not in self._loads or self.apart:
            self._loads[key] = self.op("const", dtype=dtype, hint="c", attr=value)
        return self._loads[key]

    def cast(self, name: str, dtype: str) -> str:
        source = self.kernel.ops[name]
        if source.dtype == dtype:
            return name
        if source.kind == "const":
            return self.const(source.attr, dtype)
        return self.op("cast", name, dtype=dtype, hint=f"as_{'float' if dtype == 'float32' else dtype}")

    def reduce(self, how: str, name: str, hint: str = "") -> str:
        if self.kernel.ops[name].level != "full":  # constant along the row
            name = self.op("spread", name, dtype=self.kernel.ops[name].dtype)
            self.kernel.ops[name].level = "full"
        return self.op("reduce", name, dtype=self.kernel.ops[name].dtype, attr=how, hint=hint or {"sum": "total"}.get(how, how))

    def argument(self, value: str) -> Argument:
        """Returns the kernel argument for the graph's `value`."""
        if value in self._arguments:
            return self._arguments[value]
        spec = self.network.spec(value)
        if spec.dtype not in READ:
            raise Refused(f"{spec.dtype} is left to PyTorch")
        entry = self.network.inputs.get(value)
        hint = entry.target.rpartition(".")[2] if entry is not None and entry.target else value
        name = self.fresh(identifier(hint), self.kernel.arguments)
        self._arguments[value] = self.kernel.arguments[name] = Argument(name, value, spec.dtype, count(spec))
        return self._arguments[value]

    def domain_strides(self, strides: tuple[int, ...], at: Map) -> tuple[int, ...]:
        """Returns the strides over the domain for a tensor with the given `strides` and the axis map `at`."""
        result = [0] * len(self.sizes)
        for stride, entry in zip(strides, at, strict=True):
            step = stride
            for axis in reversed(entry):
                result[axis] = step
                step *= self.part_size(axis)
        return tuple(result)

    def part_size(self, axis: int) -> int:
        return self.sizes[axis]

    def value(self, name: str, at: Map) -> str:
        """Returns the operation that provides value `name` aligned to `at`. Values that this kernel does not compute are loaded."""
        if self.computed_here(name):
            known = self.operand_map(name)
            assert known is not None, f"{name} is computed here: `infer_maps` refuses a kernel that leaves it without a map"
            for size, entry, wanted in zip(self.network.spec(name).shape, known, at, strict=True):
                if entry and entry != wanted and size != 1:
                    raise Refused(f"{name} would be read along another axis")
            while name not in self.values:
                name = self.network.nodes[name].args[0]["ref"]
            return self.values[name]
        node = self.network.nodes.get(name)
        if node is not None and short(node) in CONSTANTS and name not in self.loaded:
            return self._constant(node, at)
        layout = self.network.layouts[name]
        if layout.base in self.inside:
            raise Refused(f"{name} rearranges a value of the same kernel")
        argument = self.argument(layout.base)
        argument.read = True
        access = Access(argument.name, self.domain_strides(layout.strides, at), layout.offset)
        key = ("load", argument.name, access.strides, access.offset)
        if key not in self._loads:
            self._loads[key] = self.op("load", dtype=in_registers(argument.dtype), hint=f"{argument.name}_i", access=access)
        if layout.base == self.accumulated and name in self.network.deciding:
            return self.op("round", self._loads[key], hint="rounded", attr=argument.dtype)
        return self._loads[key]

    def as_decided(self, name: str) -> None:
        """Rounds the graph's value `name` to its type if a decision depends on it."""
        op = self.values.get(name)
        if op is None or name not in self.network.deciding or is_held(self.kernel, op, dtype := self.network.spec(name).dtype):
            return
        self.values[name] = self.op("round", self.cast(op, "float32"), hint="rounded", attr=dtype)

    def _constant(self, node: Node, at: Map) -> str:
        stored = self.network.spec(node.name).dtype
        if stored not in SUPPORTED:
            raise Refused(f"{stored} is left to PyTorch")
        dtype = in_registers(stored)
        if short(node) != "arange":
            value = filled_with(node)
            return self.const(rounded(value, stored) if stored in HALVES else value, dtype)
        start, step = progression(node)
        if len(at[0]) != 1 or dtype == "float32":
            raise Refused("a range that is not of integers")
        here = self.op("coord", dtype="int64", hint="at", attr=at[0][0])
        scaled = self.op("mul", here, self.const(step, "int64"), dtype="int64") if step != 1 else here
        return self.cast(self.op("add", scaled, self.const(start, "int64"), dtype="int64") if start else scaled, dtype)

    def operands(self, node: Node, dtype: str | None, *arguments: Any) -> list[str]:
        """Returns the arguments of a pointwise operator as operations of type `dtype`; None means that each keeps its own type."""
        out = self.maps[node.name]
        found = []
        for argument in arguments:
            if isinstance(argument, dict) and "ref" in argument:
                rank = len(self.network.spec(argument["ref"]).shape)
                shape = self.network.spec(argument["ref"]).shape
                at = out[len(out) - rank :] if rank else ()
                at = tuple(() if size == 1 else entry for size, entry in zip(shape, at, strict=True))
                op = self.value(argument["ref"], at)
                found.append(op if dtype is None else self.cast(op, dtype))
            else:
                value = plain(argument)
                own = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
                found.append(self.const(value, dtype or own))
        return found

    # -- stores -------------------------------------------------------------------------------------------------------------

    def store(self, name: str) -> None:
        """Writes the graph's value `name` to its own memory."""
        shape, at, op = self.network.spec(name).shape, self.maps[name], self.values[name]
        layout = self.network.layouts[name]
        strides = self.domain_strides(layout.strides if layout.base == name else contiguous_strides(shape), at)
        dtype = self.network.spec(name).dtype
        op = self.cast(op, in_registers(dtype))
        if self.kernel.ops[op].kind == "round" and self.kernel.ops[op].attr == dtype:
            op = self.kernel.ops[op].args[0]  # the store rounds anyway
        level = self.stored_level(name, tuple(shape), at, op)
        argument = self.argument(name)
        argument.written = True
        self.kernel.stores.append(Store(op, level, Access(argument.name, strides)))

    def stored_level(self, name: str, shape: tuple[int, ...], at: Map, op: str) -> Level:
        """Returns whether operation `op` with the given shape is stored once per element of the kernel or once per row."""
        covered = {axis for entry in at for axis in entry}
        needed = {axis for axis in range(len(self.sizes)) if self.sizes[axis] != 1}
        splits_whole = all(product(self.sizes[a] for a in entry) == size for entry, size in zip(at, shape, strict=True) if entry)
        if not splits_whole:
            raise Refused(f"{name} is only partly covered by the windows")
        rows = {axis for axis in self.outer if self.sizes[axis] != 1}
        if covered & needed == needed and (self.inner or not self.kernel.reduces):
            return "full"
        if covered & needed == rows and self.kernel.ops[op].level == "row" and self.outer_only(covered):
            if not self.kernel.reduces:  # such kernels have elements but no rows, so a per-row store would never run
                raise Refused(f"{name} is one value, and no element of the kernel")
            return "row"
        raise Refused(f"{name} has another shape than the kernel's rows and elements")

    def outer_only(self, covered: set[int]) -> bool:
        return all(axis in self.outer or self.sizes[axis] == 1 for axis in covered)


# C++ keywords, and functions that have the same name as their operation.
RESERVED = {
    "isnan": "is_nan",
    "isinf": "is_inf",
    "and": "both",
    "or": "either",
    "xor": "differ",
    "not": "negated",
    "float": "x",
    "int": "x",
    "long": "x",
    "bool": "x",
    "new": "x",
    "this": "x",
}
SPLIT_NAMES = frozenset(op.split(".")[1] for op in SPLITS)


def tensor_args(node: Node) -> list[str]:
    return [a["ref"] for a in [*node.args, *node.kwargs.values()] if isinstance(a, dict) and "ref" in a]


def identifier(text: str) -> str:
    cleaned = "".join(c if c.isalnum() else "_" for c in text).strip("_") or "value"
    return f"t{cleaned}" if cleaned[0].isdigit() else cleaned
