"""The structure of a task's work, from its captured graph: the shapes of its products, rows and sorts, its dependent steps, and its constant parts.

Advice that applies only to some shapes (few tiles, long rows, groups of different sizes) is checked against these facts, and is not given if its
conditions are not met. Anything that cannot be determined from the graph stays unknown, and unknown facts rule nothing out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from verifier.graph import GROUPED, Graph, Node

# fmt: off
PRODUCTS = frozenset([
    "mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "matmul", "conv1d", "conv2d", "conv3d", "einsum", "grouped_linear",
])
REDUCTIONS = frozenset([
    "sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "std", "prod", "softmax", "_softmax", "log_softmax", "_log_softmax",
    "layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "rms_norm", "instance_norm", "cumsum", "argmax", "argmin", "logsumexp",
    "norm", "linalg_vector_norm", "_cdist_forward", "bincount", "cross_entropy_loss",
])
SOFTMAXES = frozenset(["softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp"])
EXPONENTIALS = frozenset(["softmax", "_softmax", "exp"])
CHOICES = frozenset([
    "topk", "sort", "argmax", "argmin", "index", "index_put", "index_add", "scatter", "scatter_add", "gather", "one_hot", "embedding",
])
RECURRENT = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu"])
# These operators move, rename or create data without any arithmetic.
MOVES = frozenset([
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "select", "slice", "clone", "alias",
    "unbind", "split", "split_with_sizes", "getitem", "cat", "stack", "pad", "constant_pad_nd", "_to_copy", "empty", "full", "zeros", "ones",
    "arange", "zeros_like", "ones_like", "full_like", "detach", "lift_fresh_copy", "roll", "flip", "index", "repeat", "copy", "embedding",
    "upsample_nearest2d", "pixel_shuffle", "tril", "triu",
])
# fmt: on
_SORTS = frozenset(["topk", "sort", "kthvalue", "median"])
_PICKS = frozenset(["argmax", "argmin", "max", "min"])
_GATHERED = frozenset(["cat", "stack"])  # moves that copy weights in every call
_VIEWS = frozenset([
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "select", "slice", "alias", "unbind", "split",
    "split_with_sizes", "getitem", "detach", "stack",
])  # fmt: skip
_HIDDEN = frozenset(["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"])  # products whose sizes are not determined
_CHECKS = frozenset(["_assert_tensor_metadata", "_assert_async", "sym_size", "scalar_tensor"])
_NO_TRAINING = "_no_training"  # batch norm with running statistics, which is a scale and a shift that depend on parameters and buffers alone
STEPS = 16  # minimum number of dependent steps that indicates a recurrence rather than a deep model

Shapes = Mapping[str, tuple[int, ...]]


class Product(BaseModel):
    """A matrix product, or a convolution viewed as one (`m`: positions, `n`: output channels of a group, `k`: inputs of an output)."""

    batch: int
    m: int
    n: int
    k: int
    convolution: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def operand_elements(self) -> int:
        return self.batch * self.k * (self.m + self.n)

    def tiles(self, side: int) -> int:
        """Returns the number of square tiles of the result."""
        return self.batch * math.ceil(self.m / side) * math.ceil(self.n / side)


class ReducedRows(NamedTuple):
    """The rows over which a reduction runs."""

    kind: str
    rows: int
    length: int


class Structure(BaseModel):
    """Distinct shapes; null if the shape of at least one operator of the kind could not be determined."""

    operators: list[str] | None = None  # the operators' full names; null if parts of the task were not captured
    products: list[Product] | None = None
    rows: list[ReducedRows] | None = None
    sorted_lengths: list[int] | None = None  # lengths of rows that are sorted or whose largest elements are selected
    groups: bool = False  # whether there are independent products of different or data-dependent sizes
    depthwise: bool = False  # whether a convolution processes each channel separately
    chains: bool = True  # whether a pointwise operator follows another one
    foldable: bool = False  # whether an operator computes something from parameters and buffers alone
    largest_made: int = 0  # elements of the largest tensor that an operator produces
    score_elements: int | None = None  # elements of the largest matrix of scores between two products; null: unknown


def structure_of(graph: Graph, shapes: Shapes) -> Structure:
    products = [(node, product_of(node, shapes)) for node in graph.nodes if kind_of(node) in PRODUCTS]
    rows = [row_of(node, shapes) for node in graph.nodes if kind_of(node) in REDUCTIONS or "batch_norm" in kind_of(node)]
    known = [product for _, product in products if product is not None]
    hidden = any(kind_of(node) in _HIDDEN or "attention" in node.op or kind_of(node) in RECURRENT for node in graph.nodes)
    return Structure(
        operators=sorted({node.op for node in graph.nodes}) if not graph.left else None,
        products=_distinct(known) if len(known) == len(products) and not hidden else None,
        rows=list(dict.fromkeys(row for row in rows if row is not None)) if None not in rows else None,
        sorted_lengths=_sorted_lengths(graph, shapes),
        groups=_has_groups(graph, {node.name: product for node, product in products}),
        depthwise=any(product.convolution and product.n == 1 and product.batch > 1 for product in known),
        chains=_has_chains(graph),
        foldable=_is_foldable(graph),
        largest_made=max((math.prod(shapes.get(node.name, ())) for node in graph.nodes if kind_of(node) not in _VIEWS), default=0),
        score_elements=_score_elements(graph, shapes),
    )


def _distinct(products: Sequence[Product]) -> list[Product]:
    return list({tuple(product.model_dump().values()): product for product in products}.values())


def kind_of(node: Node) -> str:
    """Returns an operator's plain name: "aten.sum.dim_IntList" -> "sum"."""
    parts = node.op.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def inputs_of(node: Node) -> list[str]:
    """Returns the names of the values that an operator reads, in the order of its arguments."""
    found: list[str] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "ref" in value:
                found.append(value["ref"])
            else:
                for part in value.values():
                    look(part)
        elif isinstance(value, list):
            for part in value:
                look(part)

    look(node.args)
    look(node.kwargs)
    return found


def product_of(node: Node, shapes: Shapes) -> Product | None:
    """Returns the sizes of a product or convolution, or null if they cannot be determined."""
    kind, given = kind_of(node), [shapes.get(name, ()) for name in inputs_of(node)]
    out = node.outputs[0].shape if node.outputs else ()
    if len(given) < 2 or not out or kind == "einsum":
        return None
    if node.op == GROUPED:  # rows in groups of unknown sizes, and a stack of weights (groups, columns, depth)
        groups = given[1][0] if len(given[1]) == 3 else 0
        return Product(batch=groups, m=math.ceil(given[0][0] / groups), n=given[1][1], k=given[1][2]) if groups and given[0] else None
    if kind.startswith("conv"):
        return _convolution(given[0], given[1], out)
    left, right = (given[1], given[2]) if kind in ("addmm", "baddbmm") and len(given) > 2 else (given[0], given[1])
    if not left or not right:
        return None
    if kind == "linear" or len(right) == 2:
        return Product(batch=1, m=math.prod(out[:-1]), n=out[-1], k=left[-1])
    if len(right) == 1 or len(left) == 1:  # a matrix and a vector
        return Product(batch=1, m=math.prod(out), n=1, k=left[-1])
    return Product(batch=math.prod(out[:-2]), m=out[-2], n=out[-1], k=left[-1])


def _convolution(x: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...]) -> Product | None:
    if len(weight) < 3 or len(x) < 3 or len(out) != len(x) or out[1] != weight[0] or not weight[1]:
        return None  # a transposed convolution, or one without a batch
    groups = max(x[1] // weight[1], 1)
    positions = math.prod(out) // max(out[1], 1)
    return Product(batch=groups, m=positions, n=max(out[1] // groups, 1), k=math.prod(weight[1:]), convolution=True)


def row_of(node: Node, shapes: Shapes) -> ReducedRows | None:
    """Returns the rows of a reduction, or null if they cannot be determined."""
    kind, names = kind_of(node), inputs_of(node)
    shape = shapes.get(names[0], ()) if names else ()
    size = math.prod(shape)
    if not shape or not size:
        return None
    if "batch_norm" in kind and len(shape) > 1:
        return ReducedRows("batch_norm", shape[1], size // shape[1])
    if kind in ("layer_norm", "native_layer_norm", "rms_norm"):
        normalised = node.args[1] if len(node.args) > 1 and isinstance(node.args[1], list) else None
        return (
            ReducedRows(kind, size // math.prod(normalised), math.prod(normalised))
            if normalised and all(isinstance(n, int) for n in normalised)
            else None
        )
    if kind in ("group_norm", "native_group_norm", "instance_norm", "_cdist_forward", "bincount", "cross_entropy_loss", "linalg_vector_norm", "norm"):
        return None
    dims = node.args[1] if len(node.args) > 1 else None
    if dims is None or dims == []:
        return ReducedRows(kind, 1, size)
    chosen = dims if isinstance(dims, list) else [dims]
    if not all(isinstance(dim, int) and not isinstance(dim, bool) and -len(shape) <= dim < len(shape) for dim in chosen):
        return ReducedRows(kind, size, 1) if isinstance(dims, dict) else None  # max and min of two tensors are not reductions
    length = math.prod(shape[dim] for dim in chosen)
    return ReducedRows(kind, size // length, length)


def _sorted_lengths(graph: Graph, shapes: Shapes) -> list[int] | None:
    def lengths(kinds: frozenset[str], at: int) -> list[int | None]:
        found: list[int | None] = []
        for node in graph.nodes:
            if kind_of(node) in kinds:
                shape = shapes.get(inputs_of(node)[0], ()) if inputs_of(node) else ()
                dim = node.args[at] if len(node.args) > at else -1
                usable = isinstance(dim, int) and not isinstance(dim, bool) and -len(shape) <= dim < len(shape)
                found.append(shape[dim] if shape and usable else None)
        return found

    found = [*lengths(_SORTS - {"sort", "median"}, 2), *lengths(frozenset(["sort", "median"]), 1)] or lengths(_PICKS, 1)
    known = [length for length in found if length is not None]
    return sorted(set(known)) if len(known) == len(found) else None


def _has_groups(graph: Graph, products: Mapping[str, Product | None]) -> bool:
    """Returns whether products of different sizes are independent of each other, or whether a product has groups whose row counts depend on the
    data."""
    if any(node.op == GROUPED or kind_of(node) == "einsum" for node in graph.nodes):
        return True
    chosen = any(kind_of(node) in CHOICES for node in graph.nodes)
    depth: dict[str, int] = {}
    sizes: dict[int, set[tuple[int, int, int]]] = {}
    for node in graph.nodes:
        before = max((depth.get(name, 0) for name in inputs_of(node)), default=0)
        depth[node.name] = before + (node.name in products)
        product = products.get(node.name)
        if product is None or product.convolution:
            continue
        if product.batch > 1 and chosen:
            return True  # a fixed capacity per group, filled depending on the data
        sizes.setdefault(depth[node.name], set()).add((product.m, product.n, product.k))
    return any(len(different) > 1 for different in sizes.values())


def _has_chains(graph: Graph) -> bool:
    """Returns whether an elementwise operator reads the result of another one, possibly through a view."""
    pointwise: set[str] = set()
    for node in graph.nodes:
        kind = kind_of(node)
        before = not pointwise.isdisjoint(inputs_of(node))
        if kind in _VIEWS or kind in _CHECKS:
            pointwise |= {node.name} if before else set()
        elif kind not in MOVES | PRODUCTS | REDUCTIONS | RECURRENT | CHOICES and not any(word in kind for word in ("norm", "pool", "attention")):
            if before:
                return True
            pointwise.add(node.name)
    return False


def _is_foldable(graph: Graph) -> bool:
    """Returns whether an operator computes something from parameters and buffers alone. Values that forward writes back into a buffer are not
    constant. Stacks of weights that represent a loop over groups do not count, because they exist only in the captured graph."""
    weights = {entry.name for entry in graph.inputs if entry.kind in ("parameter", "buffer") and entry.target not in graph.mutations}
    written, grouped = set(graph.mutations.values()), {name for node in graph.nodes if node.op == GROUPED for name in inputs_of(node)}
    constant = set(weights)
    for node in graph.nodes:
        kind, names = kind_of(node), inputs_of(node)
        if kind.endswith(_NO_TRAINING):
            return True
        if not names or not set(names) <= constant or kind in _CHECKS or node.name in written:
            continue
        constant.add(node.name)
        if (kind not in MOVES and kind not in RECURRENT) or (kind in _GATHERED and node.name not in grouped):
            return True
    return False


def _score_elements(graph: Graph, shapes: Shapes) -> int | None:
    """Returns the number of elements of the largest matrix that a softmax or an exponential computes from a product."""
    largest = 0
    for node in graph.nodes:
        kind, names = kind_of(node), inputs_of(node)
        if "attention" in node.op:
            given = [shapes.get(name, ()) for name in names[:2]]
            if len(given) < 2 or any(len(shape) < 3 for shape in given):
                return None
            largest = max(largest, math.prod(given[0][:-1]) * given[1][-2])
        elif kind in EXPONENTIALS and node.outputs:
            largest = max(largest, math.prod(node.outputs[0].shape))
    return largest or None


def unrolled_loop(graph: Graph) -> tuple[int, int]:
    """Returns the length of the longest chain of equal products or reductions in which each depends on the previous one, that is, the number of steps
    of an unrolled loop, and how many products and reductions within a step depend on each other. Returns 0 steps if no chain has `STEPS` or more. The
    layers of a deep model are not a loop, because each has its own weights."""
    weights = {entry.name for entry in graph.inputs if entry.kind == "parameter"}
    keys = {node.name: key for node in graph.nodes if (key := _key(node, weights)) is not None}
    often = {key for key, count in Counter(keys.values()).items() if count >= STEPS}
    if not often:
        return 0, 1
    chains: dict[str, dict[Any, tuple[int, str]]] = {}  # value -> key -> (length of the chain so far, its first node)
    best: dict[Any, tuple[int, str, str]] = {}
    for node in graph.nodes:
        mine: dict[Any, tuple[int, str]] = {}
        for name in inputs_of(node):
            for key, found in chains.get(name, {}).items():
                if found[0] > mine.get(key, (0, ""))[0]:
                    mine[key] = found
        key = keys.get(node.name)
        if key in often:
            length, first = mine.get(key, (0, node.name))
            mine[key] = (length + 1, first)
            if length + 1 > best.get(key, (0, "", ""))[0]:
                best[key] = (length + 1, first, node.name)
        chains[node.name] = mine
    loops = {key: found for key, found in best.items() if found[0] >= STEPS and _weights_between(graph, weights, *found[1:]) * 2 < found[0]}
    if not loops:
        return 0, 1
    # Equal reductions may occur several times in a step; a product with a separate weight does not.
    products = [found for key, found in loops.items() if key[0] in PRODUCTS]
    length, first, last = max(products or loops.values(), key=lambda found: found[0])
    return length, max(round(_heavy_between(graph, first, last) / (length - 1)), 1)


def _heavy_between(graph: Graph, first: str, last: str) -> int:
    """Returns the largest number of products and reductions on a path from one node to another, excluding the first node."""
    depth = {first: 0}
    for node in graph.nodes:
        before = [depth[name] for name in inputs_of(node) if name in depth]
        if before and node.name != first:
            depth[node.name] = max(before) + (kind_of(node) in PRODUCTS or kind_of(node) in REDUCTIONS)
    return depth.get(last, 0)


def _key(node: Node, weights: set[str]) -> tuple[Any, ...] | None:
    """Returns what equal steps of a loop have in common, or null for an elementwise operator."""
    kind = kind_of(node)
    if kind not in PRODUCTS and kind not in REDUCTIONS:
        return None
    return kind, node.outputs[0].shape if node.outputs else (), frozenset(name for name in inputs_of(node) if name in weights)


def _weights_between(graph: Graph, weights: set[str], first: str, last: str) -> int:
    """Counts the weights of products on the paths from one node to another."""
    after = {first}
    for node in graph.nodes:
        if not after.isdisjoint(inputs_of(node)):
            after.add(node.name)
    before = {last}
    for node in reversed(graph.nodes):
        if node.name in before:
            before.update(inputs_of(node))
    return len(set(_product_weights(graph, weights, after & before)))


def _product_weights(graph: Graph, weights: set[str], chosen: set[str]) -> Iterator[str]:
    for node in graph.nodes:
        if node.name in chosen and kind_of(node) in PRODUCTS:
            yield from (name for name in inputs_of(node) if name in weights)
