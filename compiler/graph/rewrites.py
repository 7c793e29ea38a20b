"""Rewrites operators in terms of others that kernels support, without changing the values. The rewrites run on the list of nodes before planning."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from compiler.graph.layout import SPLITS, VIEWS, contiguous_strides
from compiler.graph.values import plain, refs
from verifier.graph import Node
from verifier.task import TensorSpec

Specs = dict[str, TensorSpec]  # spec of every value


def rewrite(nodes: list[Node], specs: Specs, results: set[str]) -> list[Node]:
    """Applies the rewrites. `results` are the values that forward returns. Values that other nodes read keep their names."""
    read = results.union(*(refs([node.args, list(node.kwargs.values())]) for node in nodes)) if nodes else results
    items: dict[str, dict[int, str]] = {}  # operator with several results -> the results that are read
    for node in nodes:
        if node.op == "getitem" and node.name in read:
            items.setdefault(node.args[0]["ref"], {})[node.args[1]] = node.name
    views = (VIEWS | SPLITS) - {"aten.unsqueeze.default"}  # an axis of size 1 fits any layout
    viewed = {name for node in nodes if node.op in views for name in refs(node.args)} | results
    by_name = {node.name: node for node in nodes}
    found, dropped = [], set()
    for node in nodes:
        name = node.op.split(".")[1] if "." in node.op else node.op
        if node.op in ("aten.max.dim", "aten.min.dim") and set(items.get(node.name, {})) == {0} and node.name not in results:
            value = items[node.name][0]
            dims = [[node.args[1]], *node.args[2:3]]
            found.append(_new(node, f"aten.a{name}.default", [node.args[0], *dims], specs[value], value))
            dropped.add(value)
        elif node.op == "aten.copy.default" and specs[node.args[1]["ref"]].shape == node.outputs[0].shape:
            found.append(_copied(node, specs[node.args[1]["ref"]], node.name in viewed))
        elif node.op in BAGS and set(items.get(node.name, {})) == {0} and (made := bags(node, by_name.get(node.args[2]["ref"]), specs)):
            found += made
            dropped.add(items[node.name][0])
            made[-1].name = items[node.name][0]
        elif node.name not in dropped:
            found += RULES[name](node, specs) if name in RULES else [node]
    return found


def _copied(node: Node, source: TensorSpec, viewed: bool) -> Node:
    """Replaces a copy that overwrites a whole tensor, because its result does not depend on the old contents."""
    whole = node.outputs[0]
    if source.dtype != whole.dtype:
        cast = _new(node, "aten._to_copy.default", node.args[1:2], whole)
        return cast.model_copy(update={"kwargs": {"dtype": f"torch.{whole.dtype}"}})
    return _new(node, f"aten.{'clone' if viewed else 'alias'}.default", node.args[1:2], whole)


def _new(node: Node, op: str, args: list[Any], spec: TensorSpec, name: str = "", **changes: Any) -> Node:
    return node.model_copy(update={"name": name or node.name, "op": op, "args": args, "kwargs": {}, "outputs": [spec], **changes})


def _spec(shape: Iterable[int], dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape=tuple(shape), dtype=dtype)


def instance_norm(node: Node, specs: Specs) -> list[Node]:
    """Rewrites an instance norm that uses input statistics as a group norm with one group per channel."""
    x, weight, bias, mean, _, by_input, _, eps = node.args[:8]
    shape = specs[x["ref"]].shape
    if by_input is not True or mean is not None or len(shape) < 3:
        return [node]
    return [_new(node, "aten.group_norm.default", [x, shape[1], weight, bias, eps], node.outputs[0])]


def dropout(node: Node, specs: Specs) -> list[Node]:
    """Removes dropout with probability 0 or in eval mode."""
    kept = plain(node.args[1]) == 0 or node.args[2] is False
    return [_new(node, "aten.alias.default", node.args[:1], node.outputs[0])] if kept else [node]


BAGS = ("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")


def bags(node: Node, starts: Node | None, specs: Specs) -> list[Node]:
    """Rewrites embedding bags of equal size as a table lookup followed by a sum or mean per bag. Returns an empty list for any other bags."""
    usual: list[Any] = [None, None, None, False, 0, False, None, False, -1]
    table, index, _, _, mode, _, weights, last, padding = [*node.args, *usual[len(node.args) :]]
    if starts is None or starts.op != "aten.arange.start_step" or mode not in (0, 1) or weights is not None or last or padding != -1:
        return []
    first, _, size = (plain(one) for one in [*starts.args, 1][:3])
    count, whole = starts.outputs[0].shape[0], specs[index["ref"]]
    if first != 0 or whole.shape != (count * size,) or not count:
        return []
    out = node.outputs[0]
    grouped = _new(node, "aten.view.default", [index, [count, size]], _spec((count, size), whole.dtype), f"{node.name}_index")
    rows = _new(node, "aten.embedding.default", [table, {"ref": grouped.name}], _spec((count, size, out.shape[1]), out.dtype), f"{node.name}_rows")
    how = "aten.mean.dim" if mode else "aten.sum.dim_IntList"
    return [grouped, rows, _new(node, how, [{"ref": rows.name}, [1]], out)]


def adaptive_pool(node: Node, specs: Specs) -> list[Node]:
    """Rewrites pooling to a single element as a mean over the trailing axes."""
    rank = int(node.op.split("pool")[1][0])
    shape = node.outputs[0].shape
    if any(size != 1 for size in shape[-rank:]):
        return [node]
    axes = list(range(len(shape) - rank, len(shape)))
    return [_new(node, "aten.mean.dim", [node.args[0], axes, True], _spec(shape, node.outputs[0].dtype))]


def einsum(node: Node, specs: Specs) -> list[Node]:
    """Rewrites an einsum as matrix products and multiplications, one operand after another."""
    match = re.fullmatch(r"([a-zA-Z,]+)->([a-zA-Z]+)", str(node.args[0]).replace(" ", ""))
    operands = match.group(1).split(",") if match else []
    if match is None or len(operands) < 2 or any(len(set(letters)) != len(letters) for letters in (*operands, match.group(2))):
        return [node]
    whole = _whole_product(node, specs, operands[0], operands[1], match.group(2)) if len(operands) == 2 else []
    return whole or contracted(node, specs, operands, match.group(2)) or [node]


def _whole_product(node: Node, specs: Specs, left: str, right: str, out: str) -> list[Node]:
    """Rewrites a contraction over a single index as one matrix product of the unchanged operands. The index must come last in the first operand and
    first in the rest of the second."""
    a, b = node.args[1]
    summed = left[-1]
    lead, last = right[:-2], out[-1]
    if summed in out or left[:-1] + last != out or not left.startswith(lead) or lead and len(left) != len(right):
        return []
    if right == lead + summed + last:
        return [_new(node, "aten.matmul.default", [a, b], node.outputs[0])]
    if right == lead + last + summed:
        shape = specs[b["ref"]].shape
        turned = _new(node, "aten.transpose.int", [b, len(shape) - 2, len(shape) - 1], _turned(specs[b["ref"]]), f"{node.name}_turned")
        return [turned, _new(node, "aten.matmul.default", [a, {"ref": turned.name}], node.outputs[0])]
    return []


def contracted(node: Node, specs: Specs, operands: list[str], out: str) -> list[Node]:
    """Contracts the first two operands, then the result with the third operand, and so on. Each step is a matrix product over the indices that are
    not needed later, or a multiplication if there are no such indices. A step with a vector is a multiplication followed by a sum. Returns an empty
    list if an index of a single operand is summed, or if a product would need more than a batched matrix product."""
    size = {
        index: extent for letters, a in zip(operands, node.args[1], strict=True) for index, extent in zip(letters, specs[a["ref"]].shape, strict=True)
    }
    if any(specs[a["ref"]].shape[at] != size[index] for letters, a in zip(operands, node.args[1], strict=True) for at, index in enumerate(letters)):
        return []
    made: list[Node] = []
    dtype = node.outputs[0].dtype

    def make(op: str, args: list[Any], letters: str, ones: str = "") -> dict[str, str]:
        shape = tuple(1 if index in ones else size[index] for index in letters)
        made.append(_new(node, op, args, _spec(shape, dtype), f"{node.name}_step_{len(made) + 1}"))
        return {"ref": made[-1].name}

    def turned(value: Any, letters: str, wanted: str) -> Any:
        """Returns `value` with its axes in the order `wanted`; missing axes are inserted with size 1."""
        order = "".join(index for index in wanted if index in letters)
        value = value if order == letters else make("aten.permute.default", [value, [letters.index(index) for index in order]], order)
        for at, index in enumerate(wanted):
            if index not in order:
                order = order[:at] + index + order[at:]
                value = make("aten.unsqueeze.default", [value, at], order, "".join(i for i in order if i not in letters))
        return value

    value, letters = node.args[1][0], operands[0]
    for at in range(1, len(operands)):
        other, needed = operands[at], set(out).union(*operands[at + 1 :])
        shared = [index for index in letters if index in other]
        summed = "".join(index for index in shared if index not in needed)
        if any(index not in needed and index not in shared for index in letters + other):
            return []
        lead = "".join(index for index in shared if index in needed)
        rows, columns = ("".join(index for index in each if index not in shared) for each in (letters, other))
        of_vectors = bool(summed) and not (rows and columns) and dtype == "float32"  # reads the larger operand only once, so no product is faster
        if summed and not of_vectors and not len(summed) == len(rows) == len(columns) == 1:
            return []
        if of_vectors:
            wanted = other if columns else letters  # the larger operand keeps its order
            product = make("aten.mul.Tensor", [turned(value, letters, wanted), turned(node.args[1][at], other, wanted)], wanted)
            letters = "".join(index for index in wanted if index not in summed)
            value = make("aten.sum.dim_IntList", [product, [wanted.index(index) for index in summed]], letters)
        elif summed:
            pair = [turned(value, letters, lead + rows + summed), turned(node.args[1][at], other, lead + summed + columns)]
            letters = lead + rows + columns
            value = make("aten.matmul.default", pair, letters)
        else:
            wanted = letters + columns
            pair = [turned(value, letters, wanted), turned(node.args[1][at], other, wanted)]
            letters = wanted
            value = make("aten.mul.Tensor", pair, letters)
    if set(letters) != set(out):
        return []
    if letters == out:  # the last operator produces the result
        return [*made[:-1], made[-1].model_copy(update={"name": node.name, "outputs": node.outputs})]
    order = [letters.index(index) for index in out]
    return [*made, _new(node, "aten.permute.default", [value, order], node.outputs[0])]


def _turned(spec: TensorSpec) -> TensorSpec:
    shape, strides = spec.shape, contiguous_strides(spec.shape)
    return TensorSpec(shape=(*shape[:-2], shape[-1], shape[-2]), dtype=spec.dtype, stride=(*strides[:-2], strides[-1], strides[-2]))


WIDE_HEAD = 128  # for wider heads, no attention kernel can keep its results in registers, and storing the scores is cheap compared with the products
MOST_SCORES = 1 << 29


def attention(node: Node, specs: Specs) -> list[Node]:
    """Splits fp32 attention with wide heads into a product for the scores, a softmax and a second product. Masks, dropout and shared keys are not
    supported."""
    q, k, v = (specs[a["ref"]] for a in node.args[:3])
    rest = [plain(a) for a in [*node.args[3:], *[None] * 4][:3]]
    mask, dropped, causal = (node.kwargs.get(name, value) for name, value in zip(("attn_mask", "dropout_p", "is_causal"), rest, strict=True))
    if mask is not None or plain(dropped) or causal or node.kwargs.get("enable_gqa") or any(one.dtype != "float32" for one in (q, k, v)):
        return [node]
    shape = (*node.outputs[0].shape[:-1], k.shape[-2])
    if max(q.shape[-1], v.shape[-1]) <= WIDE_HEAD or math.prod(shape) > MOST_SCORES or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return [node]
    scale = plain(node.kwargs.get("scale"))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    rank = len(k.shape)
    turned = _new(node, "aten.transpose.int", [node.args[1], rank - 2, rank - 1], _turned(k), f"{node.name}_keys")
    scores = _new(node, "aten.matmul.default", [node.args[0], {"ref": turned.name}], _spec(shape), f"{node.name}_scores")
    scaled = _new(node, "aten.mul.Tensor", [{"ref": scores.name}, scale], _spec(shape), f"{node.name}_scaled")
    shares = _new(node, "aten.softmax.int", [{"ref": scaled.name}, -1], _spec(shape), f"{node.name}_shares")
    return [turned, scores, scaled, shares, _new(node, "aten.matmul.default", [{"ref": shares.name}, node.args[2]], node.outputs[0])]


RULES = {
    "instance_norm": instance_norm, "dropout": dropout, "einsum": einsum, "scaled_dot_product_attention": attention,
    "adaptive_avg_pool1d": adaptive_pool, "adaptive_avg_pool2d": adaptive_pool, "adaptive_avg_pool3d": adaptive_pool,
}  # fmt: skip
