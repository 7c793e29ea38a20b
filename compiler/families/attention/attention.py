"""Attention (product, scale and mask, softmax or ReLU, product) as one kernel that never writes the scores to memory.

In the graph, attention is either one `scaled_dot_product_attention` or two products with operators between them. Softmax is computed online over the
keys: the kernel tracks the largest score so far, and rescales the sum and the results whenever it finds a larger score (M. Milakov and N. Gimelshein,
arXiv 1805.02867; T. Dao et al., arXiv 2205.14135). The products run on tensor cores. fp32 products use the method of tensor_cores.py and have the
same accuracy; 16-bit products use the method of half_cuda.py. With 16-bit types, the scores and their sums stay in fp32, so the fused kernel rounds
fewer values than separate kernels would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from compiler.families.attention import attention_cuda, half_attention_cuda
from compiler.families.attention.attention_cuda import Heads
from compiler.families.attention.half_attention_cuda import RESERVED
from compiler.families.epilogue import Tail, build_tail
from compiler.families.family import Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.product.matmul import MOST_BATCHES, lead_strides
from compiler.graph.ir import FLOATS, HALVES, SIZES, product
from compiler.graph.layout import Layout
from compiler.graph.network import Network, plain, refs
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from verifier.graph import Node

LEAST_KEYS = 64
LEAST_FLOPS = 1 << 26
WIDEST = 128  # largest head width whose results fit in registers
CHANGES = {"mul", "div", "add", "sub", "where"}  # operators that may change a score
BESIDE = {"eq", "ne", "lt", "le", "gt", "ge"}  # comparisons that may form a mask
PASSED = {"clone", "alias"}  # operators left over from a dropout with probability zero
ARITHMETIC = {"load", "const", "cast", "coord", "where", "mul", "div", "add", "sub", "neg", *BESIDE}


@dataclass(frozen=True)
class Written:
    """One occurrence of attention in the graph. `between` lists the operators that change the scores; `members` lists all operators."""

    scores: str
    between: tuple[str, ...]
    result: str
    members: tuple[str, ...]
    softmax: bool
    operands: tuple[str, str, str]  # queries, keys (transposed), values


class Attention:
    name = "attention"
    strategies = ("stream-through-softmax",)

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        if node.op == "aten.scaled_dot_product_attention.default":
            heads, reads, members, value = of_operator(network, node)
        elif node.op in ("aten.matmul.default", "aten.bmm.default"):
            written = follow(network, node)
            if written is None:
                return None
            heads, reads, members, value = of_products(network, written)
        else:
            return None
        half = network.spec(value).dtype in HALVES
        if not half and setting.precision != "fp32-strict":
            raise Refused(f"attention under {setting.precision} is left to the library")
        if heads.width > WIDEST or heads.width % (16 if half else 8) or heads.value_width != heads.width:
            raise Refused(f"attention with heads of {heads.width} is left to the library: results of up to {WIDEST} stay in registers")
        if heads.keys < LEAST_KEYS or heads.flops < LEAST_FLOPS or heads.batches > MOST_BATCHES:
            raise Refused("short attention, whose scores stay in the cache, is left to the library")
        rank = len(network.spec(value).shape)
        return Match(
            family=self.name, anchor=node.name, members=members, value=value, reads=reads, groups=(rank - 2, 1, 1), detail=heads,
            reserved=RESERVED,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        heads: Heads = work.detail
        cost = plain_cost(work, heads.flops, work.setting.figures.gflops("half") if halves(work) else None)
        if halves(work):
            cost.floor_ms = max(cost.floor_ms, half_attention_cuda.least_ms(work))
        size = 2 if halves(work) else 4
        cost.expected = f"{size * heads.batches * heads.queries * heads.keys / 2**20:.0f} MiB of scores are neither written nor read"
        return cost

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        return half_attention_cuda.knobs_of(work) if halves(work) else {"warps": (attention_cuda.WARPS, attention_cuda.warps_of(work))}

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        heads: Heads = work.detail
        if halves(work):
            return half_attention_cuda.printed(work, score_tail(work.network, heads))
        return attention_cuda.printed(work, score_tail(work.network, heads) if heads.between is not None else None)


def halves(work: Work) -> bool:
    return work.network.spec(work.match.value).dtype in HALVES


def of_operator(network: Network, node: Node) -> tuple[Heads, tuple[str, ...], tuple[str, ...], str]:
    args = [plain(a) for a in node.args[3:]] + [None] * 4
    given = {key: plain(value) for key, value in node.kwargs.items()}
    mask, dropped, causal = given.get("attn_mask", args[0]), given.get("dropout_p", args[1]), given.get("is_causal", args[2])
    if mask is not None or dropped or given.get("enable_gqa"):
        raise Refused("attention with a mask of its own, dropout or shared keys is left to the library")
    if network.spec(node.name).dtype in HALVES:
        raise Refused("attention of 16 bits as one operator is left to the library, which has a kernel for it")
    names = tuple(a["ref"] for a in node.args[:3])
    q, k, v = (network.layouts[name] for name in names)
    scale = given.get("scale")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    turned = Layout(k.base, (*k.shape[:-2], k.shape[-1], k.shape[-2]), (*k.strides[:-2], k.strides[-1], k.strides[-2]), k.offset)
    heads = heads_of(network, names, (q, turned, v), network.spec(node.name).shape, softmax=True, scale=scale, causal=bool(causal))
    return heads, tuple(dict.fromkeys(names)), (node.name,), node.name


def of_products(network: Network, written: Written) -> tuple[Heads, tuple[str, ...], tuple[str, ...], str]:
    q, k, v = (network.layouts[name] for name in written.operands)
    shape = network.spec(written.result).shape
    if network.spec(written.scores).shape[:-2] != shape[:-2]:
        raise Refused("attention whose values have other batches than its scores is left to the library")
    between = (written.scores, written.between)
    heads = heads_of(network, written.operands, (q, k, v), shape, softmax=written.softmax, between=between)
    tail = score_tail(network, heads)
    if any(op.kind not in ARITHMETIC for op in tail.kernel.ops.values()):
        raise Refused("attention with functions between its products is left to the library")
    masks = [argument.value for argument in tail.arguments if argument.read and argument.value != written.scores and not argument.written]
    return heads, tuple(dict.fromkeys([*written.operands, *masks])), written.members, written.result


def heads_of(network: Network, names: tuple[str, ...], layouts: tuple[Layout, Layout, Layout], shape: tuple[int, ...], **rest: Any) -> Heads:
    q, k, v = layouts
    dtypes = {network.spec(name).dtype for name in names}
    dtype = next(iter(dtypes))
    if len(dtypes) > 1 or dtype not in FLOATS:
        raise Refused("attention of several types, or of other ones than floating numbers, is left to the library")
    aligned = 16 // SIZES[dtype]
    lead = shape[:-2]
    places = []
    for layout, (row, depth) in ((q, (-2, -1)), (k, (-1, -2)), (v, (-2, -1))):
        if len(layout.shape) < 2 or len(layout.shape) > len(shape):
            raise Refused("attention over operands of other ranks is left to the library")
        batch = lead_strides(layout, lead)
        if layout.strides[depth] != 1 or any(n % aligned for n in (layout.strides[row], layout.offset, *(stride for _, _, stride in batch))):
            raise Refused("attention whose heads do not lie at multiples of 16 bytes is left to the library")
        places.append((layout.strides[row], layout.offset, batch))
    return Heads(
        names=tuple(names), places=tuple(places), batches=product(lead), queries=q.shape[-2], keys=k.shape[-1], width=q.shape[-1],
        value_width=v.shape[-1], **rest,
    )  # fmt: skip


def follow(network: Network, node: Node) -> Written | None:
    """Finds the attention whose first product is `node`."""
    at, between, passed, weighted = node, [], [], None
    while True:
        users = network.users[at.name]
        if len(users) != 1 or at.name in network.results:
            return None
        user = network.nodes[users[0]]
        name = short(user)
        if user.op in ("aten.matmul.default", "aten.bmm.default"):
            if weighted is None or user.args[0] != {"ref": at.name} or at.name in refs(user.args[1]):
                return None
            break
        if weighted is None and name in CHANGES and network.spec(user.name).shape == network.spec(node.name).shape:
            between.append(user.name)
        elif weighted is None and (name == "relu" or (name == "softmax" and plain(user.args[1]) % len(user.outputs[0].shape) == len(
            user.outputs[0].shape) - 1)):  # fmt: skip
            weighted = user
        elif weighted is not None and name in PASSED and not network.is_view(user.name):
            passed.append(user.name)
        elif not (network.is_view(user.name) and network.spec(user.name).shape == network.spec(at.name).shape and name in PASSED):
            return None
        at = user
    beside = []
    for name in between:
        for read in refs(network.nodes[name].args):
            maker = network.nodes.get(read)
            if maker is not None and short(maker) in BESIDE and set(network.users[read]) <= set(between) and read not in network.results:
                beside.append(read)
    order = {name: at for at, name in enumerate(network.nodes)}
    inner = tuple(sorted({*between, *beside}, key=order.__getitem__))
    members = tuple(sorted({node.name, *inner, weighted.name, *passed, user.name}, key=order.__getitem__))
    operands = (node.args[0]["ref"], node.args[1]["ref"], user.args[1]["ref"])
    if any(network.base(name) in members for name in operands):
        return None
    return Written(node.name, inner, user.name, members, short(weighted) == "softmax", operands)


def score_tail(network: Network, heads: Heads) -> Tail:
    """Builds the tail applied to a score before softmax or ReLU, over (batch, query, key). Raises `Refused`."""
    assert heads.between is not None, "attention as one operator has no operators between its products"
    scores, between = heads.between
    rank = len(network.spec(scores).shape)
    return build_tail(network, scores, list(between), {*between, scores}, (rank - 2, 1, 1), RESERVED)
