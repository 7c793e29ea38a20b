"""Matrix products (linear layers, mm, bmm, addmm) on tensor cores with fp32 accuracy and a pointwise tail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compiler.families.family import NAME, Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import parameters
from compiler.families.product import tensor_cores, triangle, triton_product
from compiler.families.product.product_kernel import Printing, kernel_parts
from compiler.families.product.tensor_cores import DEPTH, Product, Tile
from compiler.figures import own_arithmetic
from compiler.graph.ir import HALVES
from compiler.graph.ir import product as multiplied
from compiler.graph.layout import Layout
from compiler.graph.network import Network, plain
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.expressions import product_term
from compiler.kernel.functions import CUDA
from compiler.kernel.text import below, known, shift, times
from compiler.kernel.text import stride as step
from verifier.graph import Node

LEAST_FLOPS = 1 << 26  # smaller products take less time than a launch, and the library's kernels for them are good
LEAST_SIDE, LEAST_DEPTH = 16, 16
MOST_BATCHES = 65535  # limit of a grid's second dimension
RESERVED = ("a", "b", "bias", "memory", "tile", "row0", "column0", "group", "within", "height", "batch", "first", "last", "to_a", "to_b", "step",
            "at", "line", "k", "inside", "column", "row", "end", "value", "scratch", "part")  # fmt: skip
RESERVED_BY = {"cuda": RESERVED, "triton": triton_product.RESERVED}
KNOBS_BY = {"cuda": tensor_cores.knobs_of, "triton": triton_product.knobs_of}


@dataclass(frozen=True)
class Operand:
    """An operand's layout. Element (line, depth) of a batch is at ``offset + line * stride + depth * depth_stride``, plus ``batch / after % size *
    stride`` for each (after, size, stride) in `batch`."""

    lines: int
    depth: int
    stride: int
    depth_stride: int
    batch: tuple[tuple[int, int, int], ...]
    offset: int
    anywhere: bool = False  # whether tiles may start at any line

    @property
    def depth_inner(self) -> bool:
        return self.depth_stride == 1 or self.stride != 1

    @property
    def width(self) -> int:
        """Floats per copy: 4 if they are contiguous and every address is a multiple of 16 bytes, otherwise 1."""
        inner, outer = (self.depth, self.stride) if self.depth_inner else (self.lines, self.depth_stride)
        unit = self.depth_stride if self.depth_inner else self.stride
        return 4 if unit == 1 and all(n % 4 == 0 for n in (inner, outer, self.offset, *(stride for _, _, stride in self.batch))) else 1


@dataclass(frozen=True)
class Multiplication:
    product: Product
    a: Operand
    b: Operand
    names: tuple[str, str]  # graph values of the operands
    bias: str | None
    of_rows: bool = False  # whether the bias has one element per row instead of per column
    begins: str | None = None  # the value that holds the first row of each group, if the rows are grouped

    @property
    def own(self) -> list[tuple[str, str]]:
        """The kernel's pointers and the graph values that they point to."""
        more = (("bias", self.bias), ("begins", self.begins))
        return [("a", self.names[0]), ("b", self.names[1]), *((name, value) for name, value in more if value)]


class Matmul:
    name = "matmul"
    strategies = ("split-product", "fuse-matmul-tail")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        name = short(node)
        if name not in ("linear", "mm", "matmul", "bmm", "addmm"):
            return None
        refuse_unless_fp32(node, setting, [network.spec(a["ref"]).dtype for a in node.args if isinstance(a, dict) and "ref" in a])
        found = read_product(network, node, name)
        product = found.product
        if min(product.rows, product.columns) < LEAST_SIDE or product.depth < LEAST_DEPTH or flops(product) < LEAST_FLOPS:
            raise Refused("a small or thin product, which the library does as well")
        if product.batches > MOST_BATCHES:
            raise Refused(f"more than {MOST_BATCHES} products at once are left to the library: a grid has no more blocks along its second axis")
        rank = len(node.outputs[0].shape)
        groups = (rank - 2, 1, 1) if product.batches > 1 else (rank - 1, 1)
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, groups=groups, detail=found,
            reserved=RESERVED_BY[setting.language],
            reads=(*found.names, *([found.bias] if found.bias else [])),
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        product = work.detail.product
        kept = triangle.kept_share(work, product.rows, product.columns)
        return plain_cost(work, int(flops(product) * kept), work.setting.figures.gflops(own_arithmetic(work.setting.precision)))

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        return KNOBS_BY[work.setting.language](work, work.detail.product)

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda, "triton": self.print_triton}

    def print_cuda(self, work: Work) -> Printed:
        found: Multiplication = work.detail
        product = found.product
        tile = tensor_cores.tile_of(work, product)
        pitches = tensor_cores.pitches(product, tile)
        setup = [*operand_setup("a", found.a, "row0"), *operand_setup("b", found.b, "column0")]
        load_a = operand_loads("a", found.a, "row0", tile.rows, pitches[0], tile)
        load_b = operand_loads("b", found.b, "column0", tile.columns, pitches[1], tile)
        arguments = work.arguments(*found.own)
        texts = [*(["batch"] if product.batches > 1 else []), "row", "column"]
        columns = ["const float b_column = bias[column];"] if found.bias else []
        tail = work.tail.statements(CUDA, texts, "(value + b_column)" if found.bias else "value")
        if tensor_cores.split_of(work, product) == 1 and not product.groups:
            setup = triangle.zeros(work, product, tile, columns, tail) + setup
        wide = "(long)" if product.rows * product.columns * product.batches >= 2**31 else ""
        at = f"{wide}({times('batch', product.rows)} + row)" if product.batches > 1 else f"{wide}row"
        printing = Printing(
            parameters=parameters(arguments, "__restrict__"), names=", ".join(a.name for a in arguments), setup=setup, load_a=load_a, load_b=load_b,
            columns=columns, rows=[], tail=tail, elements=f"{times(at, product.columns)} + column",
        )  # fmt: skip
        shape = f"{product.rows} x {product.depth} by {product.depth} x {product.columns}" + repeated(product)
        return Printed(
            kernel_parts(NAME, work, product, printing), arguments,
            shared=tensor_cores.shared_sources(work, product), flags=tensor_cores.flags(work, product),
            scratch=tensor_cores.scratch_bytes(work, product), comment=[f"{shape}: {tensor_cores.describe(work, product)}"],
        )  # fmt: skip

    def print_triton(self, work: Work) -> Printed:
        return triton_product.print_product(work)


def refuse_unless_fp32(node: Node, setting: Setting, dtypes: list[str]) -> None:
    if any(dtype != "float32" for dtype in [*dtypes, *(spec.dtype for spec in node.outputs)]):
        halves = [dtype for dtype in dtypes if dtype in HALVES]
        what = f"{halves[0]}, which the library's tensor-core kernels are made for," if halves else "other types than float32"
        raise Refused(f"a product of {what} is left to the library")
    if setting.precision != "fp32-strict":
        raise Refused(f"under {setting.precision} the library's tensor-core kernels do one product where ours would do three")


def repeated(product: Product) -> str:
    """Returns the number of products as human-readable text."""
    return f", {product.batches} times" if product.batches > 1 else f", by one of {product.groups} for each group of rows" if product.groups else ""


def flops(product: Product) -> int:
    return 2 * product.rows * product.columns * product.depth * product.batches


def read_product(network: Network, node: Node, name: str) -> Multiplication:
    bias = None
    args: list[Any] = list(node.args)
    if name == "addmm":
        if any(plain(node.kwargs.get(k, 1)) != 1 for k in ("alpha", "beta")) or len(args) > 3:
            raise Refused("a scaled sum of products is left to the library")
        bias, args = args[0]["ref"], args[1:]
    elif name == "linear" and len(args) > 2 and args[2] is not None:
        bias = args[2]["ref"]
    left, right = args[0]["ref"], args[1]["ref"]
    a, b = network.layouts[left], network.layouts[right]
    if name == "linear":
        b = Layout(b.base, b.shape[::-1], b.strides[::-1], b.offset)
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise Refused("a product with a vector is bound by memory: left to the library")
    if bias is not None:
        layout = network.layouts[bias]
        if layout.shape != (b.shape[-1],) or not layout.contiguous or layout.offset:
            raise Refused("a bias that is no vector over the columns is left to the library")
    lead = node.outputs[0].shape[:-2]
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    batches = multiplied(lead)
    a_batch, b_batch = lead_strides(a, lead), lead_strides(b, lead)
    if not b_batch and batches > 1 and len(a_batch) == 1 and a_batch[0][2] == rows * a.strides[-2]:  # a single product over all rows
        rows, batches, a_batch = rows * batches, 1, ()
    left_operand = Operand(rows, depth, a.strides[-2], a.strides[-1], a_batch, a.offset)
    right_operand = Operand(columns, depth, b.strides[-1], b.strides[-2], b_batch, b.offset)
    product = Product(rows, columns, depth, batches, left_operand.depth_inner, right_operand.depth_inner)
    return Multiplication(product, left_operand, right_operand, (left, right), bias)


def lead_strides(layout: Layout, lead: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Returns (after, size, stride) for each run of axes in `lead` over which the matrices are evenly spaced. Axes along which all matrices are the
    same are omitted."""
    missing = len(lead) + 2 - len(layout.shape)
    shape, strides = (1,) * missing + layout.shape, (0,) * missing + layout.strides
    found: list[tuple[int, int, int]] = []
    after = 1
    for size, own, stride in list(zip(lead, shape[:-2], strides[:-2], strict=True))[::-1]:
        step = stride if own == size else 0
        if size > 1 and found and found[-1][2] * found[-1][1] == step and found[-1][0] * found[-1][1] == after:
            found[-1] = (found[-1][0], found[-1][1] * size, found[-1][2])
        elif size > 1:
            found.append((after, size, step))
        after *= size
    return tuple(run for run in found if run[2])


def operand_setup(name: str, operand: Operand, start: str) -> list[str]:
    """Advances the pointer to the batch; `start` is a line number in the batch's tensor."""
    parts = [f"(long)(batch{f' / {known(after)}' if after > 1 else ''} % {known(size)}) * {step(stride)}" for after, size, stride in operand.batch]
    parts += [shift(operand.offset) if parts else str(operand.offset)] if operand.offset else []
    return [f"{name} += {' + '.join(parts)};"] if parts else []


def operand_loads(name: str, operand: Operand, start: str, height: int, pitch: int, tile: Tile, line_stride: str = "") -> list[str]:
    """Returns statements that copy a stage of `height` lines from the operand's tile at `start`. Elements outside the operand become zero.
    `line_stride` is the stride between lines, if it varies between blocks."""
    width, threads = operand.width, tile.loaders
    across = DEPTH if operand.depth_inner else height  # number of contiguous elements in the tile
    per_line = across // width
    inner = f"at % {per_line}" + (f" * {width}" if width > 1 else "")
    line, k = (f"at / {per_line}", inner) if operand.depth_inner else (inner, f"at / {per_line}")
    wide = (operand.lines - 1) * operand.stride + (operand.depth - 1) * operand.depth_stride >= 2**31
    terms = [f"{'(long)' if wide else ''}({start} + line)"]
    terms[0] = f"{terms[0]} * {line_stride}" if line_stride else product_term(terms[0], operand.stride)
    terms.append(product_term(f"({'(long)' if wide else ''}step * {DEPTH} + k)", operand.depth_stride))
    tests = [below(f"{start} + line", operand.lines)] if operand.lines % height or operand.anywhere else []
    tests += [below(f"step * {DEPTH} + k", operand.depth)] if operand.depth % DEPTH else []
    place = f"{times('line', pitch)} + k" if operand.depth_inner else f"{times('k', pitch)} + line"
    inside = " && ".join(tests) or "true"
    source = f"{name} + {' + '.join(terms)}" if not tests else f"inside ? {name} + {' + '.join(terms)} : {name}"
    return [
        "#pragma unroll",
        f"for (int at = threadIdx.x; at < {height * DEPTH // width}; at += {threads}) {{",
        f"    const int line = {line}, k = {k};",
        *([f"    const bool inside = {inside};"] if tests else []),
        f"    copy_async{4 * width}(to_{name} + {place}, {source}, {'inside' if tests else 'true'});",
        "}",
    ]
