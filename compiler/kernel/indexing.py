"""Implements operators that move elements as loads at computed positions. A position is computed from the coordinates of the result or read from
memory.

Kernels never read outside a tensor. If an index from memory is out of range, the element is NaN, or 0 for types without NaN. (PyTorch raises an
error.)
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.graph.ir import Access, in_registers
from compiler.graph.layout import Layout
from compiler.graph.network import plain
from compiler.graph.reductions import short
from compiler.graph.regions import REGION
from compiler.kernel.builder import READ, Builder, Map, Refused
from compiler.kernel.lowering import lowers, result
from verifier.graph import Node

INDICES = ("int64", "int32")
MOST_PARTS = 8  # maximum number of parts per concatenation; each element reads every part (at the nearest position)


@dataclass
class Place:
    """A position along one axis of the source, given by an int64 operation. `checked` means that the position may be out of range, like an index from
    memory."""

    axis: int
    position: str
    checked: bool = False


def load_at(builder: Builder, source: str, places: list[Place], at: Map, hint: str = "") -> str:
    """Loads the element of `source` at `places`. `at` has an entry for every axis and gives the positions along the other axes."""
    if builder.computed_here(source):
        raise Refused(f"{source} is read at other places than it is computed at")
    layout, spec = builder.network.layouts[source], builder.network.spec(source)
    if layout.base in builder.inside or spec.dtype not in READ:
        raise Refused(f"{source} is left to PyTorch")
    argument = builder.argument(layout.base)
    argument.read = True
    access, inside = access_at(builder, argument.name, layout, places, at)
    dtype = in_registers(argument.dtype)
    found = builder.op("gather", access.index, dtype=dtype, hint=hint or f"{argument.name}_at", access=access)
    if not inside:
        return found
    if dtype != "float32":
        return builder.op("where", inside, found, builder.const(0, dtype), dtype=dtype)
    # Multiply by 1 or NaN instead of selecting: a select would become a branch, which prevents vectorisation of the loop.
    return builder.op("mul", found, builder.op("where", inside, builder.const(1), builder.const(float("nan")), hint="valid"))


def access_at(builder: Builder, argument: str, layout: Layout, places: list[Place], at: Map) -> tuple[Access, str]:
    """Returns the access to the element at `places`, with the positions along the other axes given by `at`. Also returns the operation that tests
    whether the element is in range, or "" if it always is. An out-of-range access uses position 0."""
    moved = {place.axis for place in places}
    rest = [(stride, entry) for axis, (stride, entry) in enumerate(zip(layout.strides, at, strict=True)) if axis not in moved]
    strides = builder.domain_strides(tuple(stride for stride, _ in rest), tuple(entry for _, entry in rest))
    zero, inside, where = builder.const(0, "int64"), "", ""
    for place in places:
        position = place.position
        if place.checked:
            low = builder.op("ge", position, zero, dtype="bool")
            high = builder.op("lt", position, builder.const(layout.shape[place.axis], "int64"), dtype="bool")
            within = builder.op("and", low, high, dtype="bool", hint="inside")
            position = builder.op("where", within, position, zero, dtype="int64", hint="picked")
            inside = builder.op("and", inside, within, dtype="bool", hint="inside") if inside else within
        step = layout.strides[place.axis]
        far = builder.op("mul", position, builder.const(step, "int64"), dtype="int64") if step != 1 and len(places) > 1 else position
        where = builder.op("add", where, far, dtype="int64") if where else far
    step = layout.strides[places[0].axis] if len(places) == 1 else 1
    return Access(argument, strides, layout.offset, where, step), inside


def coordinate(builder: Builder, entry: tuple[int, ...]) -> str:
    """Returns the position along an axis that is composed of the given domain axes."""
    found = ""
    for axis in entry:
        here = builder.op("coord", dtype="int64", hint="at", attr=axis)
        if found:
            scaled = builder.op("mul", found, builder.const(builder.part_size(axis), "int64"), dtype="int64")
            here = builder.op("add", scaled, here, dtype="int64")
        found = here
    return found or builder.const(0, "int64")


def clamped(builder: Builder, position: str, size: int) -> str:
    low = builder.op("max", position, builder.const(0, "int64"), dtype="int64")
    return builder.op("min", low, builder.const(size - 1, "int64"), dtype="int64")


def shifted(builder: Builder, position: str, by: int) -> str:
    return builder.op("add", position, builder.const(by, "int64"), dtype="int64") if by else position


def picked(builder: Builder, name: str, at: Map, size: int, wraps: bool) -> str:
    """Loads an index from memory. `wraps` means that negative indices count from the end."""
    if builder.network.spec(name).dtype not in INDICES:
        raise Refused(f"an index of {builder.network.spec(name).dtype} is left to PyTorch")
    found = builder.cast(builder.value(name, at), "int64")
    if not wraps:
        return found
    negative = builder.op("lt", found, builder.const(0, "int64"), dtype="bool")
    return builder.op("where", negative, shifted(builder, found, size), found, dtype="int64", hint="index")


def aligned(builder: Builder, name: str, at: Map) -> Map:
    """Returns the map of a value that is broadcast over `at`. The value's axes correspond to the last axes of `at`; axes of size 1 map to no axis of
    the domain."""
    shape = builder.network.spec(name).shape
    tail = at[len(at) - len(shape) :] if shape else ()
    return tuple(() if size == 1 else entry for size, entry in zip(shape, tail, strict=True))


# -- operators ----------------------------------------------------------------------------------------------------------------


@lowers("aten.embedding")
def embedding(builder: Builder, node: Node) -> str:
    table, index = node.args[0]["ref"], node.args[1]["ref"]
    out, rows = builder.maps[node.name], builder.network.spec(table).shape[0]
    position = picked(builder, index, out[:-1], rows, wraps=False)
    return load_at(builder, table, [Place(0, position, True)], ((), out[-1]), f"{table}_row")


@lowers("aten.index")
def index(builder: Builder, node: Node) -> str:
    """Indexes with integer tensors along neighbouring axes. The tensors are broadcast against each other, and their axes replace the indexed axes in
    the result."""
    source, given = node.args[0]["ref"], node.args[1]
    shape, out = builder.network.spec(source).shape, builder.maps[node.name]
    axes = [axis for axis, one in enumerate(given) if one is not None]
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        raise Refused("indices along axes that are no neighbours are left to PyTorch")
    if any(builder.network.spec(given[axis]["ref"]).dtype in ("bool", "uint8") for axis in axes):  # may have several axes
        raise Refused("a selection by a mask is left to PyTorch")
    rank = len(out) - (len(shape) - len(axes))
    lead = out[axes[0] : axes[0] + rank]
    places = [
        Place(axis, picked(builder, given[axis]["ref"], aligned(builder, given[axis]["ref"], lead), shape[axis], wraps=True), True) for axis in axes
    ]
    at = out[: axes[0]] + ((),) * len(axes) + out[axes[0] + rank :]
    return load_at(builder, source, places, at)


@lowers("aten.gather")
def gather(builder: Builder, node: Node) -> str:
    source, axis, name = node.args[0]["ref"], plain(node.args[1]), node.args[2]["ref"]
    shape, out = builder.network.spec(source).shape, builder.maps[node.name]
    if not shape:
        raise Refused("one element is left to PyTorch")
    position = picked(builder, name, aligned(builder, name, out), shape[axis % len(shape)], wraps=False)
    return load_at(builder, source, [Place(axis % len(shape), position, True)], out)


@lowers("aten.index_select")
def index_select(builder: Builder, node: Node) -> str:
    source, axis, name = node.args[0]["ref"], plain(node.args[1]), node.args[2]["ref"]
    shape, out = builder.network.spec(source).shape, builder.maps[node.name]
    axis = axis % max(len(shape), 1)
    if not shape or len(builder.network.spec(name).shape) != 1:
        raise Refused("one element is left to PyTorch")
    position = picked(builder, name, (out[axis],), shape[axis], wraps=False)
    return load_at(builder, source, [Place(axis, position, True)], out)


@lowers("aten.cat")
def cat(builder: Builder, node: Node) -> str:
    """Reads the element nearest to the requested position from each part, then selects the one from the part that contains the position."""
    parts = [one["ref"] for one in node.args[0]]
    out, dtype = builder.maps[node.name], result(builder, node)
    shapes = [builder.network.spec(name).shape for name in parts]
    axis = plain(node.args[1]) % len(out) if len(node.args) > 1 else 0
    if len(parts) > MOST_PARTS or any(len(shape) != len(out) or 0 in shape for shape in shapes):
        raise Refused("many parts, or empty ones, are left to PyTorch")
    if builder.reductions:
        raise Refused("a row that is put together of parts is read by its reduction once it is there")
    here, end, found = coordinate(builder, out[axis]), sum(shape[axis] for shape in shapes), ""
    for name, shape in reversed(list(zip(parts, shapes, strict=True))):
        start = end - shape[axis]
        position = clamped(builder, shifted(builder, here, -start), shape[axis])
        value = builder.cast(load_at(builder, name, [Place(axis, position)], out), dtype)
        before = builder.op("lt", here, builder.const(end, "int64"), dtype="bool") if found else ""
        found = builder.op("where", before, value, found, dtype=dtype, hint="part") if found else value
        end = start
    return found


@lowers("aten.roll")
def roll(builder: Builder, node: Node) -> str:
    source, shifts = node.args[0]["ref"], node.args[1]
    axes = node.args[2] if len(node.args) > 2 else []
    shape, out = builder.network.spec(source).shape, builder.maps[node.name]
    if not axes or len(axes) != len(shifts):
        raise Refused("a roll over all elements is left to PyTorch")
    total: dict[int, int] = {}
    for axis, by in zip(axes, shifts, strict=True):
        total[axis % len(shape)] = total.get(axis % len(shape), 0) + plain(by)
    places = []
    for axis, by in total.items():
        moved = shifted(builder, coordinate(builder, out[axis]), -(by % shape[axis]))
        low = builder.op("lt", moved, builder.const(0, "int64"), dtype="bool")
        places.append(Place(axis, builder.op("where", low, shifted(builder, moved, shape[axis]), moved, dtype="int64")))
    return load_at(builder, source, places, out)


@lowers("aten.flip")
def flip(builder: Builder, node: Node) -> str:
    source, shape, out = node.args[0]["ref"], builder.network.spec(node.args[0]["ref"]).shape, builder.maps[node.name]
    places = []
    for axis in sorted({plain(axis) % len(shape) for axis in node.args[1]}):
        last = builder.const(shape[axis] - 1, "int64")
        places.append(Place(axis, builder.op("sub", last, coordinate(builder, out[axis]), dtype="int64")))
    if not places:
        raise Refused("a flip along no axis is left to PyTorch")
    return load_at(builder, source, places, out)


@lowers("aten.slice_scatter")
def slice_scatter(builder: Builder, node: Node) -> str:
    """Returns the first tensor with a slice along one axis (every `step`-th position from `start` on) replaced by the second tensor."""
    args = [plain(one) for one in node.args] + [None] * (6 - len(node.args))
    whole, part = node.args[0]["ref"], node.args[1]["ref"]
    out = builder.maps[node.name]
    axis, size = (args[2] or 0) % len(out), builder.network.spec(whole).shape[(args[2] or 0) % len(out)]
    start, step = args[3] or 0, args[5] or 1
    start = min(max(start + size if start < 0 else start, 0), size)
    count = builder.network.spec(part).shape[axis]
    if step != 1 or not count:
        raise Refused("a slice with steps is left to PyTorch")
    return _instead(builder, node, whole, part, [(axis, start, count)])


@lowers(REGION)
def set_region(builder: Builder, node: Node) -> str:
    """Returns the first tensor with a region replaced by the second tensor."""
    if any(not count for _, _, count in node.args[2]):
        raise Refused("an empty region")
    return _instead(builder, node, node.args[0]["ref"], node.args[1]["ref"], node.args[2])


@lowers("aten.select_scatter")
def select_scatter(builder: Builder, node: Node) -> str:
    """Returns the first tensor with position `index` along one axis replaced by the second tensor."""
    whole, part = node.args[0]["ref"], node.args[1]["ref"]
    out, shape = builder.maps[node.name], builder.network.spec(whole).shape
    axis = plain(node.args[2]) % len(out)
    at = plain(node.args[3]) % shape[axis]
    own = _operand(builder, node, whole, out)
    other = _operand(builder, node, part, out[:axis] + out[axis + 1 :])
    here = builder.op("eq", coordinate(builder, out[axis]), builder.const(at, "int64"), dtype="bool")
    return builder.op("where", here, other, own, dtype=builder.kernel.ops[own].dtype)


@lowers("aten.constant_pad_nd", "aten.pad")
def pad(builder: Builder, node: Node) -> str:
    """Pads the tensor with a value; negative widths crop it."""
    more = [plain(one) for one in node.args[2:]]
    mode, value = ("constant", *more, 0)[:2] if short(node) == "constant_pad_nd" else (*more, *("constant", 0)[len(more) :])[:2]
    if mode != "constant":
        raise Refused(f"padding by {mode} is left to PyTorch")
    source, widths = node.args[0]["ref"], [plain(one) for one in node.args[1]]
    shape, out = builder.network.spec(source).shape, builder.maps[node.name]
    dtype = result(builder, node)
    places, inside = [], ""
    for n in range(len(widths) // 2):
        axis, before, after = len(shape) - 1 - n, widths[2 * n], widths[2 * n + 1]
        if not before and not after:
            continue
        position = shifted(builder, coordinate(builder, out[axis]), -before)
        low = builder.op("ge", position, builder.const(0, "int64"), dtype="bool")
        high = builder.op("lt", position, builder.const(shape[axis], "int64"), dtype="bool")
        within = builder.op("and", low, high, dtype="bool", hint="inside")
        inside = builder.op("and", inside, within, dtype="bool", hint="inside") if inside else within
        places.append(Place(axis, clamped(builder, position, shape[axis])))
    if not places:
        raise Refused("nothing is padded")
    return builder.op("where", inside, load_at(builder, source, places, out), builder.const(value or 0, dtype), dtype=dtype)


def _instead(builder: Builder, node: Node, whole: str, part: str, region: list[tuple[int, int, int]]) -> str:
    """Replaces a region of `whole` with `part`. `region` holds (axis, start, count) for each sliced axis."""
    out, inside, places = builder.maps[node.name], "", []
    for axis, start, count in region:
        here = shifted(builder, coordinate(builder, out[axis]), -start)
        low = builder.op("ge", here, builder.const(0, "int64"), dtype="bool")
        within = builder.op("and", low, builder.op("lt", here, builder.const(count, "int64"), dtype="bool"), dtype="bool", hint="inside")
        inside = builder.op("and", inside, within, dtype="bool", hint="inside") if inside else within
        places.append(Place(axis, clamped(builder, here, count)))
    own = _operand(builder, node, whole, out)
    dtype = builder.kernel.ops[own].dtype
    other = builder.cast(load_at(builder, part, places, out), dtype)
    return builder.op("where", inside, other, own, dtype=dtype)


def _operand(builder: Builder, node: Node, name: str, at: Map) -> str:
    return builder.cast(builder.value(name, aligned(builder, name, at)), result(builder, node))
