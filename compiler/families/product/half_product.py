"""Matrix products of bf16 or fp16 (linear layers, mm, bmm, addmm) on tensor cores with fp32 accumulation and a pointwise tail that is rounded only
once."""

from __future__ import annotations

from compiler.families.family import NAME, Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import parameters
from compiler.families.product import groups, half_tile, triangle
from compiler.families.product.half_kernel import Printing, kernel_parts, widest
from compiler.families.product.matmul import RESERVED, Multiplication, Operand, flops, operand_setup, read_product, repeated
from compiler.families.product.tensor_cores import Product
from compiler.figures import own_arithmetic
from compiler.graph.ir import HALVES
from compiler.graph.network import Network
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.functions import CUDA
from compiler.kernel.fuse import fusible
from compiler.kernel.text import known, times
from verifier.graph import Node

DEPTH = half_tile.DEPTH
LEAST_DEPTH = 8
MOST_BATCHES = 65535  # limit of a grid's second dimension
LIBRARY_RATE = 0.9  # fraction of peak that the library achieves on large products
LIBRARY_SHARE = 0.85  # the library's time relative to our kernel's if its tiles fit equally well
LIBRARY_READS = 0.8  # fraction of memory bandwidth when weights dominate: 0.67 and 0.82 in the level 3 MLPs on an H200; our kernel reaches 0.97
LIBRARY_US = 3.0  # launch overhead of the library's kernel and of a pointwise kernel that follows it
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
        arguments = work.arguments(*found.own)
        texts = [*(["batch"] if product.batches > 1 else []), "row", "column"]
        if half_tile.split_of(work, product) == 1 and not found.bias and not product.groups:
            setup = triangle.zeros(work, product, tile, [], work.tail.statements(CUDA, texts, "value")) + setup
        wide = "(long long)" if product.rows * product.columns * product.batches >= 2**31 else ""
        at = f"{wide}({times('batch', product.rows)} + row)" if product.batches > 1 else f"{wide}row"
        printing = Printing(
            dtype=dtype, parameters=parameters(arguments, "__restrict__"), names=", ".join(a.name for a in arguments), setup=setup, loads=loads,
            columns=[], rows=[], texts=texts, along=len(texts) - 1, width=widest(work.tail, len(texts) - 1, product.columns),
            bias=("row" if found.of_rows else "column") if found.bias else "", bias_along=not found.of_rows,
            elements=f"{times(at, product.columns)} + column",
        )  # fmt: skip
        shape = f"{product.rows} x {product.depth} by {product.depth} x {product.columns}{repeated(product)}"
        return Printed(
            kernel_parts(NAME, work, product, printing), arguments,
            shared=[*half_tile.shared_sources(tile, dtype), *groups.shared(product)], flags=half_tile.flags(tile),
            scratch=half_tile.scratch_bytes(work, product), comment=[f"{shape}: {half_tile.describe(work, product)}"],
        )  # fmt: skip


def half_of(network: Network, node: Node) -> str | None:
    """Returns the 16-bit type of all operands and the result, or None if the types differ or are not 16-bit."""
    dtypes = {network.spec(a["ref"]).dtype for a in node.args if isinstance(a, dict) and "ref" in a} | {spec.dtype for spec in node.outputs}
    only = next(iter(dtypes))
    return only if len(dtypes) == 1 and only in HALVES else None


def worthwhile(network: Network, node: Node, product: Product, operations: int, setting: Setting, reads: float = 1.0) -> bool:
    """True if the cost model predicts that our kernel is no slower than the library. The model assumes that the library's kernel is somewhat faster
    than ours and close to peak on large products, but that fusing pointwise operators into our kernel saves a launch and a pass over memory. All
    figures about the library are assumptions (bench/products.py measures the real ones), except `reads`, the fraction of memory bandwidth at which
    the library reads."""
    figures = setting.figures
    tile, split = half_tile.best(product, setting)
    ours = half_tile.modelled_us(half_tile.tiles(setting)[tile], split, product, setting)
    written = 2 * product.rows * product.columns * product.batches
    moved = 2 * product.batches * product.depth * (product.rows + product.columns) + written
    theirs = max(operations / figures.half_gflops / LIBRARY_RATE * 1e-3, figures.memory_ms(moved) / reads * 1e3, ours * LIBRARY_SHARE)
    saved = half_tile.BEGIN_US  # bonus for our kernel, because the library's kernels are not specialised for this shape
    if any(fusible(network, user) for user in network.readers(node.name)):
        saved += LIBRARY_US + figures.memory_ms(2 * written) * 1e3
    return ours <= theirs + saved


def alignment(operand: Operand) -> int:
    """Returns how many elements of an operand one copy moves: the largest of 8, 4, 2 and 1 for which every copy is aligned."""
    outer = operand.stride if operand.depth_inner else operand.depth_stride
    starts = (operand.offset, outer, *(stride for _, _, stride in operand.batch))
    return next(width for width in (8, 4, 2, 1) if all(start % width == 0 for start in starts))


def operand_load(name: str, operand: Operand, start: str, height: int, threads: int) -> str:
    """Returns the call that starts the copies of a stage, which consists of `height` lines from line `start` on."""
    inner = operand.depth_inner
    stride = operand.stride if inner else operand.depth_stride
    whole = operand.lines % height == 0 and operand.depth % DEPTH == 0 and not operand.anywhere
    wide = "(long long)" if (operand.lines + height) * operand.stride + (operand.depth + DEPTH) * operand.depth_stride >= 2**31 else ""
    lines = times(f"{wide}{start}", operand.stride) if operand.stride != 1 else start
    along = times(f"{wide}step", DEPTH * operand.depth_stride)
    kinds = f"{known(height)}, {threads}, {known(alignment(operand))}, {str(inner).lower()}, {known(stride)}, {known(whole, 'WHOLE')}"
    return f"load_stage<{kinds}>(to_{name}, {name} + {lines} + {along}, {known(operand.lines)} - {start}, {known(operand.depth)} - step * {DEPTH});"
