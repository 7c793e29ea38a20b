"""Algebraic identities that eliminate whole operators. They are exact over the reals for every input, and the plan lists each identity that it uses.

- The sum (mean) over the columns of a product is a product with the sum (mean) of the columns: sum(x @ w + b) = x @ sum(w) + sum(b). The identity
  still holds if the product is multiplied or divided by scalars before the sum, or if vectors over the columns are added or subtracted.
- A sum, mean, maximum, minimum or log-sum-exp over axes of size 1 is the element itself.
"""

from __future__ import annotations

from typing import Any

from compiler.graph.layout import contiguous_strides
from compiler.graph.values import new_node, plain, refs
from verifier.graph import Node
from verifier.task import TensorSpec

SCALINGS = frozenset(["aten.mul.Tensor", "aten.div.Tensor", "aten.neg.default"])
SHIFTS = frozenset(["aten.add.Tensor", "aten.sub.Tensor"])
LINEAR = frozenset(["aten.linear.default", "aten.matmul.default", "aten.mm.default"])
OF_COLUMNS = {"aten.sum.dim_IntList": "sum", "aten.mean.dim": "mean"}
OF_ONE = frozenset([*OF_COLUMNS, "aten.amax.default", "aten.amin.default", "aten.logsumexp.default"])

Specs = dict[str, TensorSpec]


def simplify(nodes: list[Node], results: set[str], inputs: Specs) -> tuple[list[Node], list[str]]:
    """Returns the simplified nodes and one sentence per identity used. `inputs` holds the specs of the values that no node produces."""
    notes: dict[str, None] = {}
    specs = inputs | {node.name: node.outputs[0] for node in nodes if node.outputs}
    readers: dict[str, int] = {}
    for node in nodes:
        for name in refs([node.args, list(node.kwargs.values())]):
            readers[name] = readers.get(name, 0) + 1
    by_name = {node.name: node for node in nodes}
    found: list[Node] = []
    for node in nodes:
        if one := of_one(node, specs):
            notes[f"{node.op.split('.')[1]} over axes of one element is that element"] = None
            found.append(one)
        elif chain := columns_of_product(node, by_name, readers, results, specs):
            notes["the sum of the columns of a product is computed as a product with the sum of the columns"] = None
            found += through(node, chain, specs)
        else:
            found.append(node)
    return found, list(notes)


def dims_of(node: Node, rank: int) -> list[int] | None:
    dims = plain(node.args[1]) if len(node.args) > 1 else None
    return None if dims is None else sorted(d % rank for d in ([dims] if isinstance(dims, int) else dims)) if rank else None


def of_one(node: Node, specs: Specs) -> Node | None:
    """Replaces a reduction over axes of size 1 with a view."""
    if node.op not in OF_ONE or not isinstance(node.args[0], dict) or "ref" not in node.args[0] or node.kwargs.get("dtype"):
        return None
    source = specs[node.args[0]["ref"]]
    dims = dims_of(node, len(source.shape))
    if not dims or any(source.shape[d] != 1 for d in dims) or source.dtype != node.outputs[0].dtype or source.dtype.startswith(("int", "bool")):
        return None
    kept = len(node.outputs[0].shape) == len(source.shape)
    op, args = ("aten.alias.default", node.args[:1]) if kept else ("aten.squeeze.dims", [node.args[0], dims])
    return node.model_copy(update={"op": op, "args": args, "kwargs": {}})


def columns_of_product(node: Node, by_name: dict[str, Node], readers: dict[str, int], results: set[str], specs: Specs) -> list[Node] | None:
    """Returns [product, scalings, ...] if `node` sums their result over the last axis and no other node reads the intermediate values."""
    if node.op not in OF_COLUMNS or node.kwargs.get("dtype") or node.outputs[0].dtype != "float32":
        return None
    chain: list[Node] = []
    name = node.args[0]["ref"]
    if dims_of(node, len(specs[name].shape)) != [len(specs[name].shape) - 1]:
        return None
    while True:
        maker = by_name.get(name)
        if maker is None or readers[name] != 1 or name in results or specs[name].dtype != "float32":
            return None
        chain.insert(0, maker)
        if maker.op in LINEAR:
            break
        if not isinstance(maker.args[0], dict) or maker.kwargs or not (is_scaling(maker) or is_shift(maker, specs)):
            return None
        name = maker.args[0]["ref"]
    right = specs[chain[0].args[1]["ref"]]
    left = specs[chain[0].args[0]["ref"]]
    if len(right.shape) != 2 or len(left.shape) < 2 or right.dtype != "float32" or left.dtype != "float32":
        return None
    return chain


def is_scaling(node: Node) -> bool:
    """Returns whether the node multiplies or divides by a number."""
    return node.op in SCALINGS and not any(isinstance(plain(a), (dict, list)) for a in node.args[1:])


def is_shift(node: Node, specs: Specs) -> bool:
    """Returns whether the node adds or subtracts a vector over the last axis that is the same for all rows, without adding leading axes."""
    if node.op not in SHIFTS or len(node.args) != 2 or not isinstance(node.args[1], dict) or "ref" not in node.args[1]:
        return False
    shape, vector = specs[node.name].shape, specs[node.args[1]["ref"]]
    if len(shape) != len(specs[node.args[0]["ref"]].shape):
        return False
    return vector.dtype == "float32" and vector.shape[-1:] == shape[-1:] and all(size == 1 for size in vector.shape[:-1])


def through(node: Node, chain: list[Node], specs: Specs) -> list[Node]:
    """Builds the product with summed columns, the scalings, the summed vectors, and a final view with the shape of the sum. Intermediate values get
    new names."""
    product, steps = chain[0], chain[1:]
    shape = (*specs[product.name].shape[:-1], 1)
    made: list[Node] = []

    def make(suffix: str, op: str, args: list[Any], size: tuple[int, ...]) -> dict[str, str]:
        spec = TensorSpec(shape=size, dtype="float32", stride=contiguous_strides(size))
        made.append(new_node(node, f"{node.name}_{suffix}", op, args, spec))
        return {"ref": made[-1].name}

    depth, linear = specs[product.args[0]["ref"]].shape[-1], product.op == "aten.linear.default"
    axis, size = (0, (1, depth)) if linear else (1, (depth, 1))
    columns = make("of_columns", node.op, [product.args[1], [axis], True], size)
    args: list[Any] = [product.args[0], columns]
    if linear and len(product.args) > 2 and product.args[2] is not None:
        args.append(make("of_bias", node.op, [product.args[2], [0], True], (1,)))
    at = make("product", product.op, args, shape)
    for number, step in enumerate(steps, start=1):
        rest = step.args[1:]
        if step.op in SHIFTS:
            rank = len(specs[step.args[1]["ref"]].shape)
            rest = [make(f"of_vector_{number}", node.op, [step.args[1], [rank - 1], True], (1,) * rank)]
        at = make(f"step_{number}", step.op, [at, *rest], shape)
    kept = len(node.outputs[0].shape) == len(shape)
    last = node.model_copy(
        update={"op": "aten.alias.default" if kept else "aten.squeeze.dims", "args": [at] if kept else [at, [len(shape) - 1]], "kwargs": {}}
    )
    return [*made, last]
