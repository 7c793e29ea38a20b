"""Averages of convolutions: algebraic identities that eliminate most of a convolution's work and are exact over the reals for every input.

- Mean over whole axes of the result: along such an axis, each tap of the window covers one range of the image, so the mean follows from the sums over
  these ranges, multiplied by the taps. All taps share the sum over all positions. For taps that do not cover the border, the sum over the border is
  subtracted.
- Means over windows of the result (average pooling without padding): each mean averages shifted windows over the image, which is a convolution with a
  larger window and the stride of the pooling.

Both also apply to transposed convolutions. Sums of weights are computed once, in double precision, like other packed weights. For 16-bit types, only
the second identity is used, and only without scalings, because rounding the taps of the larger window costs as much accuracy as rounding the
convolution's result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product as combinations
from math import prod
from typing import Any

from compiler.graph.algebra import Specs, dims_of, is_scaling
from compiler.graph.ir import HALVES
from compiler.graph.layout import contiguous_strides
from compiler.graph.values import new_node, plain, refs
from verifier.graph import Node
from verifier.task import TensorSpec

CONVOLUTIONS = {f"aten.conv{rank}d.default": (False, rank) for rank in (1, 2, 3)}
CONVOLUTIONS |= {f"aten.conv_transpose{rank}d.{'default' if rank == 1 else 'input'}": (True, rank) for rank in (1, 2, 3)}
POOLS = {f"aten.avg_pool{rank}d.default": rank for rank in (1, 2, 3)}
OF_WEIGHTS = "stitch.of_weights"  # a tensor computed once: args are the weights, kwargs["code"] is Python over {0}, {1}, ... and `device`
MOST_BLOCKS = 9  # maximum number of sums over parts of an image; beyond this number, splitting the convolution does not pay off
BORDER = 8  # a subtracted part is at most 1/8 of the axis, because a larger one would cause too much cancellation

Range = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """A convolution along one axis."""

    size: int
    out: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    extra: int = 0  # output_padding


@dataclass(frozen=True)
class Convolution:
    node: Node
    transposed: bool
    image: Any
    weight: str
    bias: Any
    axes: tuple[Window, ...]
    outputs: int

    @property
    def rank(self) -> int:
        return len(self.axes)


def averages(nodes: list[Node], results: set[str], specs: Specs, weights: set[str]) -> tuple[list[Node], list[str]]:
    """Returns the nodes and one sentence per identity used. `specs` covers every value; `weights` are the parameters and buffers that stay
    unchanged."""
    readers: dict[str, int] = {}
    for node in nodes:
        for name in refs([node.args, list(node.kwargs.values())]):
            readers[name] = readers.get(name, 0) + 1
    by_name = {node.name: node for node in nodes}
    found: list[Node] = []
    notes: dict[str, None] = {}
    for node in nodes:
        made: list[Node] | None = None
        if node.op == "aten.mean.dim" or node.op in POOLS:
            chain = steps_from(node, by_name, readers, results, specs)
            convolution = read(chain[0], specs, weights, node.outputs[0].dtype) if chain is not None else None
            if chain is not None and convolution is not None:
                made = (means if node.op == "aten.mean.dim" else windows)(node, convolution, chain[1:], specs)
        if made is None:
            found.append(node)
            continue
        kind = "the mean of a convolution over whole axes is computed from sums of its image and of its taps"
        kind = kind if node.op == "aten.mean.dim" else "an average pool of a convolution is computed as a convolution by larger windows"
        notes[kind] = None
        found += made
    return found, list(notes)


def steps_from(node: Node, by_name: dict[str, Node], readers: dict[str, int], results: set[str], specs: Specs) -> list[Node] | None:
    """Returns [convolution, scalings, ...] if `node` averages their result and no other node reads the intermediate values."""
    dtype = node.outputs[0].dtype
    if node.kwargs.get("dtype") or (dtype != "float32" and (dtype not in HALVES or node.op not in POOLS)):
        return None
    chain: list[Node] = []
    name = node.args[0]["ref"]
    while True:
        maker = by_name.get(name)
        if maker is None or readers[name] != 1 or name in results or specs[name].dtype != dtype:
            return None
        chain.insert(0, maker)
        if maker.op in CONVOLUTIONS:
            return chain
        if dtype != "float32" or not isinstance(maker.args[0], dict) or maker.kwargs or not (is_scaling(maker) or by_one_element(maker, specs)):
            return None
        name = maker.args[0]["ref"]


def by_one_element(node: Node, specs: Specs) -> bool:
    """Returns whether the node multiplies or divides by a one-element tensor."""
    if node.op not in ("aten.mul.Tensor", "aten.div.Tensor") or not isinstance(node.args[1], dict) or "ref" not in node.args[1]:
        return False
    spec = specs[node.args[1]["ref"]]
    return prod(spec.shape) == 1 and len(spec.shape) <= len(node.outputs[0].shape) and spec.dtype == "float32"


def read(node: Node, specs: Specs, weights: set[str], dtype: str = "float32") -> Convolution | None:
    transposed, rank = CONVOLUTIONS[node.op]
    args: list[Any] = [*node.args, *[None] * (8 - len(node.args))]
    image, weight, bias = args[:3]
    numbers = [plain(argument) for argument in args[3:8]]
    stride, padding, dilation = numbers[0], numbers[1], numbers[4] if transposed else numbers[2]
    shape, taps, out = specs[image["ref"]].shape, specs[weight["ref"]].shape, node.outputs[0].shape
    if isinstance(padding, str) or (numbers[3] or 1) != 1 or weight["ref"] not in weights or len(shape) != rank + 2 or prod(out) == 0:
        return None
    values = [image["ref"], weight["ref"], *([bias["ref"]] if bias else [])]
    if any(specs[name].dtype != dtype for name in values):
        return None
    extra = numbers[2] if transposed else 0
    along = [_each(value, rank, least) for value, least in ((stride, 1), (padding, 0), (dilation, 1), (extra, 0))]
    axes = tuple(Window(*sizes) for sizes in zip(shape[2:], out[2:], taps[2:], *along, strict=True))
    return Convolution(node, transposed, image, weight["ref"], bias, axes, out[1])


def _each(value: Any, rank: int, least: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value or [least])
    return values * rank if len(values) == 1 else values


class Nodes:
    """Creates nodes that replace `node` and have its type. Their names are the name of `node` plus a suffix."""

    def __init__(self, node: Node):
        self.node = node
        self.made: list[Node] = []

    def make(self, suffix: str, op: str, args: list[Any], shape: tuple[int, ...], **kwargs: Any) -> dict[str, str]:
        spec = TensorSpec(shape=shape, dtype=self.node.outputs[0].dtype, stride=contiguous_strides(shape))
        self.made.append(new_node(self.node, f"{self.node.name}_{suffix}", op, args, spec, kwargs))
        return {"ref": self.made[-1].name}

    def end(self, at: dict[str, str], steps: list[Node], shape: tuple[int, ...]) -> list[Node]:
        """Applies the scalings to `at`, the result of the convolution, and assigns the name and shape of the original node to the final value."""
        for number, step in enumerate(steps, start=1):
            at = self.make(f"scaled_{number}", step.op, [at, *step.args[1:]], shape)
        wanted = tuple(self.node.outputs[0].shape)
        op, args = ("aten.alias.default", [at]) if wanted == shape else ("aten.view.default", [at, list(wanted)])
        return [*self.made, self.node.model_copy(update={"op": op, "args": args, "kwargs": {}})]


# -- means over whole axes ------------------------------------------------------------------------------------------------------


def means(node: Node, found: Convolution, steps: list[Node], specs: Specs) -> list[Node] | None:
    dims = dims_of(node, found.rank + 2)
    if not dims or min(dims) < 2:
        return None
    whole = [dim - 2 for dim in dims]
    parts = [part for axis in whole if (part := blocks(found.axes[axis], found.transposed)) is not None]
    if len(parts) < len(whole) or prod(len(part) for part in parts) > MOST_BLOCKS:
        return None
    rest = [axis for axis in range(found.rank) if axis not in whole]
    count = prod(found.axes[axis].out for axis in whole)
    nodes = Nodes(node)
    images, channels = specs[found.image["ref"]].shape[:2]
    shape = (images, found.outputs, *(found.axes[axis].out for axis in rest))
    total: dict[str, str] | None = None
    for number, chosen in enumerate(combinations(*(part.items() for part in parts)), start=1):
        ranges = {axis: where for axis, (where, _) in zip(whole, chosen, strict=True)}
        taps = {axis: kept for axis, (_, kept) in zip(whole, chosen, strict=True)}
        seen = sums(nodes, number, found, ranges, rest, specs)
        away = sum(where != (0, found.axes[axis].size) for axis, where in ranges.items())
        text = of_taps(found, taps, -count if away % 2 else count, not rest)
        size = (found.outputs, channels) if not rest else _weights(found, channels, tuple(found.axes[axis].kernel for axis in rest))
        weight = nodes.make(f"taps_{number}", OF_WEIGHTS, [{"ref": found.weight}], size, code=text)
        bias = found.bias if total is None else None
        if rest:
            axes = [found.axes[axis] for axis in rest]
            at = nodes.make(f"part_{number}", *convolve(found.transposed, axes, seen, weight, bias), shape)
        else:
            at = nodes.make(f"part_{number}", "aten.linear.default", [seen, weight, *([bias] if bias else [])], shape)
        total = at if total is None else nodes.make(f"with_{number}", "aten.add.Tensor", [total, at], shape)
    kept = (images, found.outputs, *(1 if axis in whole else found.axes[axis].out for axis in range(found.rank)))
    assert total is not None, "each axis has the whole of it among its blocks"
    if steps and any(len(specs[a["ref"]].shape) > len(shape) for step in steps for a in step.args[1:] if isinstance(a, dict)):
        total = nodes.make("kept", "aten.view.default", [total, list(kept)], kept)
        shape = kept
    return nodes.end(total, steps, shape)


def _weights(found: Convolution, channels: int, kernel: tuple[int, ...]) -> tuple[int, ...]:
    return (channels, found.outputs, *kernel) if found.transposed else (found.outputs, channels, *kernel)


def blocks(axis: Window, transposed: bool) -> dict[Range, list[int]] | None:
    """Returns the taps for each range of the image that must be summed. The whole axis maps to all taps, and each range that some taps do not cover
    maps to those taps."""
    whole = (0, axis.size)
    found: dict[Range, list[int]] = {whole: list(range(axis.kernel))}
    if not transposed and axis.stride != 1:
        return None
    for tap in range(axis.kernel):
        shift = tap * axis.dilation - axis.padding
        if transposed:  # input i contributes to output i * stride + shift
            low, high = max(0, -(shift // axis.stride)), min(axis.size, (axis.out - 1 - shift) // axis.stride + 1)
        else:  # output o reads input o + shift
            low, high = max(0, shift), min(axis.size, axis.out + shift)
        if max(low, axis.size - high) * BORDER > axis.size:
            return None
        for cut in ((0, low), (high, axis.size)):
            if cut[0] < cut[1]:
                found.setdefault(cut, []).append(tap)
    return found


def sums(nodes: Nodes, number: int, found: Convolution, ranges: dict[int, Range], rest: list[int], specs: Specs) -> dict[str, str]:
    """Sums the image over a block of positions. The result has the shape (images, channels, remaining axes)."""
    shape = list(specs[found.image["ref"]].shape)
    at = found.image
    reduced: list[int] = []
    for axis in sorted(ranges, reverse=True):
        begin, end = ranges[axis]
        dim = axis + 2
        if end - begin == 1:
            del shape[dim]
            at = nodes.make(f"line_{number}_{axis}", "aten.select.int", [at, dim, begin], tuple(shape))
            reduced = [other - 1 for other in reduced]
            continue
        if (begin, end) != (0, shape[dim]):
            shape[dim] = end - begin
            at = nodes.make(f"slice_{number}_{axis}", "aten.slice.Tensor", [at, dim, begin, end], tuple(shape))
        reduced.append(dim)
    left = tuple(size for dim, size in enumerate(shape) if dim not in reduced)
    if reduced:
        return nodes.make(f"sum_{number}", "aten.sum.dim_IntList", [at, sorted(reduced), False], left)
    return nodes.make(f"copy_{number}", "aten.clone.default", [at], left) if rest else at


def of_taps(found: Convolution, taps: dict[int, list[int]], divisor: int, turned: bool) -> str:
    """Returns Python code that sums the taps along the eliminated axes. `turned` requests the shape (outputs, channels)."""
    text = "{0}.double()"
    for axis in sorted(taps, reverse=True):
        if len(taps[axis]) != found.axes[axis].kernel:
            text += f"[{':, ' * (axis + 2)}{taps[axis]}]"
        text += f".sum({axis + 2})"
    text = f"({text} / {divisor}).float()"
    return f"{text}.t().contiguous()" if turned and found.transposed else text


def convolve(transposed: bool, axes: list[Window], image: Any, weight: Any, bias: Any) -> tuple[str, list[Any]]:
    """Returns the operator and its arguments."""
    rank = len(axes)
    stride, padding, dilation = ([getattr(axis, name) for axis in axes] for name in ("stride", "padding", "dilation"))
    if transposed:
        op = f"aten.conv_transpose{rank}d.{'default' if rank == 1 else 'input'}"
        return op, [image, weight, bias, stride, padding, [axis.extra for axis in axes], 1, dilation]
    return f"aten.conv{rank}d.default", [image, weight, bias, stride, padding, dilation, 1]


# -- means over windows ---------------------------------------------------------------------------------------------------------


def windows(node: Node, found: Convolution, steps: list[Node], specs: Specs) -> list[Node] | None:
    args = [plain(argument) for argument in [*node.args[1:], *[None] * (7 - len(node.args))]]
    kernel = _each(args[0], found.rank, 1)
    stride = _each(args[1], found.rank, 1) if args[1] else kernel
    if any(_each(args[2], found.rank, 0)) or args[3] or args[5] or POOLS[node.op] != found.rank:  # padding, ceil mode, custom divisor
        return None
    out = tuple(node.outputs[0].shape[2:])
    along = zip(found.axes, kernel, stride, out, strict=True)
    merged = [one for axis, taps, step, size in along if (one := merge(axis, taps, step, size, found.transposed)) is not None]
    if len(merged) < found.rank:
        return None
    axes = [axis for axis, _ in merged]
    before = prod(axis.kernel * (axis.size if found.transposed else axis.out) for axis in found.axes)
    if prod(axis.kernel * axis.out for axis in axes) > before:
        return None
    nodes = Nodes(node)
    images, channels = specs[found.image["ref"]].shape[:2]
    text = "{0}.double()" + (".transpose(0, 1)" if found.transposed else "")
    for dim, (_, matrix) in enumerate(merged, start=2):
        text = f"torch.tensordot({text}, torch.tensor({matrix}, dtype=torch.float64, device=device), ([{dim}], [1])).movedim(-1, {dim})"
    size = (found.outputs, channels, *(axis.kernel for axis in axes))
    weight = nodes.make("taps", OF_WEIGHTS, [{"ref": found.weight}], size, code=f"{text}.to(torch.{node.outputs[0].dtype}).contiguous()")
    shape = (images, found.outputs, *out)
    at = nodes.make("convolved", *convolve(False, axes, found.image, weight, found.bias), shape)
    return nodes.end(at, steps, shape)


def merge(axis: Window, kernel: int, stride: int, out: int, transposed: bool) -> tuple[Window, list[list[float]]] | None:
    """Merges a convolution and the window means of its result along one axis into one convolution whose taps are `matrix` times the original taps."""
    if transposed:  # output o reads input i through tap k if and only if o + padding = i * stride + k * dilation
        if stride % axis.stride:
            return None
        meets = [(step + axis.padding - tap * axis.dilation, tap) for step in range(kernel) for tap in range(axis.kernel)]
        pairs = [(place // axis.stride, tap) for place, tap in meets if place % axis.stride == 0]
        step = stride // axis.stride
    else:
        pairs = [(at * axis.stride + tap * axis.dilation - axis.padding, tap) for at in range(kernel) for tap in range(axis.kernel)]
        step = stride * axis.stride
    first, last = min(place for place, _ in pairs), max(place for place, _ in pairs)
    if first > 0:
        return None
    matrix = [[0.0] * axis.kernel for _ in range(last - first + 1)]
    for place, tap in pairs:
        matrix[place - first][tap] += 1 / kernel
    merged = replace(axis, out=out, kernel=len(matrix), stride=step, padding=-first, dilation=1, extra=0)
    ends = (axis.size - 2 * first - len(matrix)) // step + 1
    return (merged, matrix) if ends == out else None
