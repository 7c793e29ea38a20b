"""Matrix products of bf16 or fp16 (linear layers, mm, bmm, addmm) on tensor cores, sums in fp32, with a pointwise tail that is rounded once."""

from __future__ import annotations

from compiler.families.family import NAME, Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import parameters
from compiler.families.product import half_tile, triangle
from compiler.families.product.half_kernel import Printing, kernel_parts, widest
from compiler.families.product.matmul import RESERVED, Multiplication, Operand, flops, operand_setup, read_product
from compiler.families.product.tensor_cores import Product
from compiler.figures import own_arithmetic
from compiler.graph.ir import HALVES
from compiler.graph.network import Network
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.expressions import CUDA
from compiler.kernel.fuse import fusible
from compiler.kernel.text import known, times
from verifier.graph import Node

DEPTH = half_tile.DEPTH
LEAST_DEPTH = 8
MOST_BATCHES = 65535  # the second dimension of a grid
LIBRARY_RATE = 0.9  # of the ceiling, what the library reaches on large products
LIBRARY_SHARE = 0.85  # of our kernel's time, what the library's takes where its tiles fit as well as ours
LIBRARY_READS = 0.8  # of the memory's rate where weights are most of it: 0.67 and 0.82 of it in the MLPs of level 3 on an H200, ours 0.97
LIBRARY_US = 3.0  # of a launch: of the library's kernel, and of a pointwise one behind it
RESERVED_HERE = (*RESERVED, "stages", "j", "own", "bias_of", "sum", "of_a", "of_b")


class HalfProduct:
    name = "half-product"
    strategies = ("half-product", "fuse-matmul-tail")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        name = short(node)
        if name not in ("linear", "mm", "matmul", "bmm", "addmm") or half_of(network, node) is None:
            return None
        found = read_product(network, node, name)
        product = found.product
        if product.depth < LEAST_DEPTH or product.batches > MOST_BATCHES:
            raise Refused("a product of little depth, or of more batches than a grid has, is left to the library")
        if any(1 not in (operand.stride, operand.depth_stride) for operand in (found.a, found.b)):
            raise Refused("a product of a matrix whose elements lie nowhere side by side is left to the library")
        if not worthwhile(network, node, product, flops(product), setting, LIBRARY_READS):
            raise Refused("a large product with little around it: by the model the library's kernel is the faster one")
        rank = len(node.outputs[0].shape)
        groups = (rank - 2, 1, 1) if product.batches > 1 else (rank - 1, 1)
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, groups=groups, detail=found, reserved=RESERVED_HERE,
            reads=(*found.names, *([found.bias] if found.bias else [])),
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        product = work.detail.product
        kept = triangle.kept_share(work, product.rows, product.columns)
        return plain_cost(work, int(flops(product) * kept), work.setting.figures.gflops(own_arithmetic(work.setting.precision)))

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        return half_tile.knobs_of(work, work.detail.product)

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        found: Multiplication = work.detail
        product, dtype = found.product, work.network.spec(work.match.value).dtype
        tile = half_tile.tile_of(work, product)
        setup, loads = [], []
        for name, operand, start, height in (("a", found.a, "row0", tile.rows), ("b", found.b, "column0", tile.columns)):
            setup += operand_setup(name, operand, start)
            loads.append(operand_load(name, operand, start, height, tile.loaders))
        own = [("a", found.names[0]), ("b", found.names[1]), *([("bias", found.bias)] if found.bias else [])]
        arguments = work.arguments(*own)
        texts = [*(["batch"] if product.batches > 1 else []), "row", "column"]
        if half_tile.split_of(work, product) == 1 and not found.bias:
            setup = triangle.zeros(work, product, tile, [], work.tail.statements(CUDA, texts, "value")) + setup
        wide = "(long long)" if product.rows * product.columns * product.batches >= 2**31 else ""
        at = f"{wide}({times('batch', product.rows)} + row)" if product.batches > 1 else f"{wide}row"
        printing = Printing(
            dtype=dtype, parameters=parameters(arguments, "__restrict__"), names=", ".join(a.name for a in arguments), setup=setup, loads=loads,
            columns=[], rows=[], texts=texts, along=len(texts) - 1, width=widest(work.tail, len(texts) - 1, product.columns),
            bias=("row" if found.of_rows else "column") if found.bias else "", bias_along=not found.of_rows,
            elements=f"{times(at, product.columns)} + column",
        )  # fmt: skip
        repeated = f", {product.batches} times" if product.batches > 1 else ""
        shape = f"{product.rows} x {product.depth} by {product.depth} x {product.columns}{repeated}"
        return Printed(
            kernel_parts(NAME, work, product, printing), arguments, shared=half_tile.shared_sources(tile, dtype), flags=half_tile.flags(tile),
            scratch=half_tile.scratch_bytes(work, product), comment=[f"{shape}: {half_tile.describe(work, product)}"],
        )  # fmt: skip


def half_of(network: Network, node: Node) -> str | None:
    """The 16 bit type of all operands and of the result; none where they differ, or have another type."""
    dtypes = {network.spec(a["ref"]).dtype for a in node.args if isinstance(a, dict) and "ref" in a} | {spec.dtype for spec in node.outputs}
    only = next(iter(dtypes))
    return only if len(dtypes) == 1 and only in HALVES else None


def worthwhile(network: Network, node: Node, product: Product, operations: int, setting: Setting, reads: float = 1.0) -> bool:
    """Whether the model promises no loss: the library's kernel is the better one by some, and near its ceiling on large products, but each pointwise
    operator around it that ours takes along is a launch and a pass over memory. Assumed of the library, not measured (bench/products.py does that),
    but for the share of the memory's rate at which it `reads`."""
    figures = setting.figures
    tile, split = half_tile.best(product, setting)
    ours = half_tile.modelled_us(half_tile.tiles(setting)[tile], split, product, setting)
    written = 2 * product.rows * product.columns * product.batches
    moved = 2 * product.batches * product.depth * (product.rows + product.columns) + written
    theirs = max(operations / figures.half_gflops / LIBRARY_RATE * 1e-3, figures.memory_ms(moved) / reads * 1e3, ours * LIBRARY_SHARE)
    saved = half_tile.BEGIN_US  # the library's kernels are not made for this shape alone
    if any(fusible(network, user) for user in network.readers(node.name)):
        saved += LIBRARY_US + figures.memory_ms(2 * written) * 1e3
    return ours <= theirs + saved


def alignment(operand: Operand) -> int:
    """How many elements of an operand one copy takes: 8, 4 or 2 where every copy then begins on its boundary."""
    outer = operand.stride if operand.depth_inner else operand.depth_stride
    starts = (operand.offset, outer, *(stride for _, _, stride in operand.batch))
    return next(width for width in (8, 4, 2, 1) if all(start % width == 0 for start in starts))


def operand_load(name: str, operand: Operand, start: str, height: int, threads: int) -> str:
    """The call that starts the copies of a stage, of `height` lines from line `start` on."""
    inner = operand.depth_inner
    stride = operand.stride if inner else operand.depth_stride
    whole = operand.lines % height == 0 and operand.depth % DEPTH == 0
    wide = "(long long)" if (operand.lines + height) * operand.stride + (operand.depth + DEPTH) * operand.depth_stride >= 2**31 else ""
    lines = times(f"{wide}{start}", operand.stride) if operand.stride != 1 else start
    along = times(f"{wide}step", DEPTH * operand.depth_stride)
    kinds = f"{known(height)}, {threads}, {known(alignment(operand))}, {str(inner).lower()}, {known(stride)}, {known(whole, 'WHOLE')}"
    return f"load_stage<{kinds}>(to_{name}, {name} + {lines} + {along}, {known(operand.lines)} - {start}, {known(operand.depth)} - step * {DEPTH});"
