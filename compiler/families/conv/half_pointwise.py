"""16-bit convolutions with one-element windows, on images with contiguous positions: multiplies the weights by each image without copying it.

`half_conv` gathers windows from channels-last images and transposes other images first. With one-element windows there is nothing to gather, and the
transpose would take most of the time. This family does not need it, because the second operand of a product may also have contiguous columns.
"""

from __future__ import annotations

from compiler.families.conv.conv import NAMES
from compiler.families.family import Match, Setting
from compiler.families.pool import three
from compiler.families.product.half_product import LEAST_DEPTH, MOST_BATCHES, RESERVED_HERE, HalfProduct, half_of, worthwhile
from compiler.families.product.matmul import Multiplication, Operand, flops
from compiler.families.product.tensor_cores import Product
from compiler.graph.ir import product as product_of
from compiler.graph.network import Network, plain
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from verifier.graph import Node

EVEN = 4  # fewest elements per copy; every line of positions is aligned to this number


class HalfPointwise(HalfProduct):
    name = "half-pointwise"

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        transposed, rank = NAMES.get(short(node), (True, 0))
        if transposed or half_of(network, node) is None:
            return None
        found = read_pointwise(network, node, rank)
        if found is None:
            return None
        if not worthwhile(network, node, found.product, flops(found.product), setting):
            raise Refused("a large convolution with little around it: by the model the library's kernel is the faster one")
        groups = (1, 1, rank) if found.product.batches > 1 else (2, rank)
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, groups=groups, detail=found, reserved=RESERVED_HERE,
            reads=(*found.names, *([found.bias] if found.bias else [])),
        )  # fmt: skip


def read_pointwise(network: Network, node: Node, rank: int) -> Multiplication | None:
    """Returns the product with the weights as its first operand, or None for any other convolution."""
    args = [*node.args, *[None] * (7 - len(node.args))]
    image, weight, bias = args[0]["ref"], args[1]["ref"], args[2]["ref"] if args[2] else None
    stride, padding, _, groups = (plain(argument) for argument in args[3:7])
    source, taps = network.layouts[image], network.spec(weight).shape
    if isinstance(padding, str) or len(source.shape) != rank + 2 or product_of(taps[2:]) != 1 or (groups or 1) != 1:
        return None
    if product_of(three(stride or 1, rank)) != 1 or any(three(padding or 0, rank, 0)):
        return None
    if not (source.contiguous and network.layouts[node.name].contiguous and network.layouts[weight].contiguous and network.made_once(weight)):
        return None
    if bias is not None and (not network.layouts[bias].contiguous or network.layouts[bias].offset):
        return None
    images, channels, outputs, plane = source.shape[0], source.shape[1], taps[0], product_of(source.shape[2:])
    if plane % EVEN or source.offset % EVEN or channels < LEAST_DEPTH or images > MOST_BATCHES:
        return None
    each = ((1, images, channels * plane),) if images > 1 else ()
    return Multiplication(
        Product(outputs, plane, channels, images, True, False), Operand(outputs, channels, channels, 1, (), 0),
        Operand(plane, channels, 1, plane, each, source.offset), (weight, image), bias, of_rows=True,
    )  # fmt: skip
