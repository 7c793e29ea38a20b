"""Multiplies rows sorted by group, each group by its own weight (mixture of experts), in a single launch for any group sizes.

The device derives the sizes from the start of each group. Nothing waits for the host, so a CUDA graph can capture the launch. The tiles and the
arithmetic are the same as for other products of the same type.
"""

from __future__ import annotations

from compiler.families.family import Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.product import groups, half_tile, tensor_cores
from compiler.families.product.half_product import RESERVED_HERE, HalfProduct
from compiler.families.product.matmul import Matmul, Multiplication, Operand, flops
from compiler.families.product.tensor_cores import Product
from compiler.figures import own_arithmetic
from compiler.graph.ir import HALVES
from compiler.graph.network import Network
from compiler.kernel.builder import Refused
from verifier.graph import GROUPED, Node


class Grouped:
    name = "grouped-product"
    strategies = ("grouped-product", "fuse-matmul-tail")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        if node.op != GROUPED:
            return None
        x, weight, begins = (argument["ref"] for argument in node.args)
        dtypes = {network.spec(name).dtype for name in (x, weight, node.name)}
        if len(dtypes) > 1 or not dtypes <= {"float32", *HALVES}:
            raise Refused("a grouped product of other types, or of several, is left to PyTorch")
        found = read_grouped(network, x, weight, begins)
        if dtypes <= HALVES and any(1 not in (one.stride, one.depth_stride) for one in (found.a, found.b)):
            raise Refused("a product of a matrix whose elements lie nowhere side by side is left to the library")
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, groups=(1, 1), detail=found, reads=(x, weight, begins),
            reserved=(*RESERVED_HERE, *groups.RESERVED),
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        return plain_cost(work, flops(work.detail.product), work.setting.figures.gflops(own_arithmetic(work.setting.precision)))

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        return (half_tile.knobs_of if self._half(work) else tensor_cores.knobs_of)(work, work.detail.product)

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        return HalfProduct().print_cuda(work) if self._half(work) else Matmul().print_cuda(work)

    def _half(self, work: Work) -> bool:
        return work.network.spec(work.match.value).dtype in HALVES


def read_grouped(network: Network, x: str, weight: str, begins: str) -> Multiplication:
    a, b = network.layouts[x], network.layouts[weight]
    rows, depth, columns = a.shape[0], a.shape[1], b.shape[1]
    places = network.layouts[begins]
    if not rows or not places.contiguous:
        raise Refused("a grouped product of no rows is left to PyTorch")
    left = Operand(rows, depth, a.strides[0], a.strides[1], (), a.offset, anywhere=True)
    right = Operand(columns, depth, b.strides[1], b.strides[2], ((1, b.shape[0], b.strides[0]),), b.offset)
    product = Product(rows, columns, depth, 1, left.depth_inner, right.depth_inner, groups=b.shape[0], begins=places.offset)
    return Multiplication(product, left, right, (x, weight), None, begins=begins)
