"""Matrix-vector products, whose speed is limited by reading the matrix once.

A block processes a few rows together, so each vector element that it loads serves all of them. Several blocks share a long row, and a second kernel
adds up their partial sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.families.family import NAME, Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import launcher, parameters
from compiler.families.text import indented
from compiler.graph.ir import product
from compiler.graph.layout import Layout
from compiler.graph.network import Network
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.functions import CUDA
from compiler.kernel.text import KernelText, Launch, Part, below, beyond, end, shift, times
from verifier.graph import Node

LEAST = 1 << 18  # matrix size in elements below which the launch overhead exceeds the time of the product
LEAST_DEPTH = 256
RESERVED = ("a", "b", "bias", "parts", "row", "row0", "group", "chunk", "thread", "k", "sums", "x", "y", "value", "total", "lane", "warp", "chunks")
SHARED = """\
// Thread 0 of a block gets the sum over its threads.
template <int THREADS> __device__ __forceinline__ float sum_of_block(float value) {
    __shared__ float of_warp[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x >= 32) return value;
    value = threadIdx.x < THREADS / 32 ? of_warp[threadIdx.x] : 0.0f;
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}
"""


@dataclass(frozen=True)
class Rows:
    rows: int
    depth: int
    stride: int  # stride between matrix rows
    offset: int
    names: tuple[str, str]  # matrix, vector
    bias: str | None
    bias_stride: int

    @property
    def width(self) -> int:
        return 1 if self.depth % 4 or self.stride % 4 or self.offset % 4 else 4


class Matvec:
    name = "matvec"
    strategies = ("own-matvec", "fuse-pointwise")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        kind = short(node)
        if kind not in ("matmul", "mm", "mv", "linear") or not node.outputs[0].shape:
            return None
        left, right = (network.layouts[node.args[at]["ref"]] for at in (0, 1))
        bias = node.args[2]["ref"] if kind == "linear" and len(node.args) > 2 and node.args[2] else None
        if kind == "linear" and len(right.shape) == 2:
            right = Layout(right.base, right.shape[::-1], right.strides[::-1], right.offset)
        if len(right.shape) > 2 or (len(left.shape) > 2 and not left.contiguous):
            return None
        columns = right.shape[1] if len(right.shape) == 2 else 1
        depth, rows = left.shape[-1], product(left.shape[:-1])
        if min(rows, columns) != 1:
            return None
        if columns == 1:
            matrix, vector, count = left, right, rows
            steps = (left.strides[-2] if len(left.shape) > 1 else depth, left.strides[-1], right.strides[0])
        else:
            matrix, vector, count = right, left, columns
            steps = (right.strides[1], right.strides[0], left.strides[-1])
        stride, along, of_vector = steps
        values = (matrix.base, vector.base)
        if any(network.spec(name).dtype != "float32" for name in (*values, *([bias] if bias else []))):
            raise Refused("a product of other types than float32 is left to the library")
        if along != 1 or of_vector != 1 or vector.offset or depth < LEAST_DEPTH or count * depth < LEAST:
            raise Refused("a product of a vector that is small, or whose matrix lies across memory, is left to the library")
        if depth >= 2**30:
            raise Refused("a product with a vector of more than 2^30 elements is left to the library")
        if bias and (network.layouts[bias].base != bias or not network.layouts[bias].contiguous):
            raise Refused("a bias that is a view")
        found = Rows(count, depth, stride, matrix.offset, values, bias, 0 if columns == 1 else 1)
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, reads=(*values, *([bias] if bias else [])),
            groups=(len(node.outputs[0].shape),), detail=found, reserved=RESERVED,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        return plain_cost(work, 2 * work.detail.rows * work.detail.depth)

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        threads, together, chunks = launch_of(work)
        return {"block": ((128, 256, 512), threads), "rows": ((1, 2, 4, 8), together), "row-blocks": ((1, 2, 4, 8, 16, 32), chunks)}

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        found: Rows = work.detail
        threads, together, chunks = launch_of(work)
        width, blocks = found.width, -(-found.rows // together)
        own = [("a", found.names[0]), ("b", found.names[1]), *([("bias", found.bias)] if found.bias else [])]
        arguments = work.arguments(*own)
        taken, names = parameters(arguments, "__restrict__"), ", ".join(argument.name for argument in arguments)
        first = "blockIdx.x" if chunks == 1 else f"blockIdx.x / {chunks}"
        lines = ["const int thread = threadIdx.x;", f"const long row0 = {times(f'(long)({first})', together)};"]
        lines += [f"const int chunk = blockIdx.x % {chunks};"] if chunks > 1 else []
        lines.append(f"float sums[{together}] = {{}};")
        start = "thread" if chunks == 1 else f"({times('chunk', threads)} + thread)"
        lines.append(f"for (int k = {start}{' * 4' if width == 4 else ''}; k < {found.depth}; k += {threads * chunks * width}) {{")
        kind = "float4" if width == 4 else "float"
        lines.append("    const float4 y = *(const float4*)(b + k);" if width == 4 else "    const float y = b[k];")
        row = f"{below('row0 + row', found.rows)} ? row0 + row : {end(found.rows - 1)}" if found.rows % together else "row0 + row"
        lines += ["#pragma unroll", f"    for (int row = 0; row < {together}; ++row) {{"]
        offset = f"a + {shift(found.offset)}" if found.offset else "a"
        lines.append(f"        const {kind} x = *(const {kind}*)({offset} + {times(f'({row})', found.stride)} + k);")
        lines.append("        sums[row] += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;" if width == 4 else "        sums[row] += x * y;")
        lines += ["    }", "}", "#pragma unroll", f"for (int group = 0; group < {together}; ++group) {{"]
        lines += ["    const long row = row0 + group;", f"    const float total = sum_of_block<{threads}>(sums[group]);"]
        inside = below("row", found.rows)
        inside = f"thread == 0{f' && {inside}' if found.rows % together else ''}"
        if chunks > 1:
            lines.append(f"    if ({inside}) parts[{times('row', chunks)} + chunk] = total;")
        else:
            lines += [f"    if ({inside}) {{", *(f"        {line}" for line in finish(work, "total")), "    }"]
        lines.append("}")
        scratch = ", float* __restrict__ parts" if chunks > 1 else ""
        kernel = KernelText.of(NAME, "kernel", f"__launch_bounds__({threads}) ", f"{taken}{scratch}", indented(lines))
        source: list[Part] = [kernel, "\n"]
        launches = [Launch(kernel.name, str(blocks * chunks), threads, f"{names}{', parts' if chunks > 1 else ''}")]
        if chunks > 1:
            lines = ["const long row = blockIdx.x * 128 + threadIdx.x;", f"if ({beyond('row', found.rows)}) return;", "double total = 0.0;"]
            lines.append(f"for (int chunk = 0; chunk < {chunks}; ++chunk) total += parts[{times('row', chunks)} + chunk];")
            lines += finish(work, "(float)total")
            joined = KernelText.of(NAME, "parts", "__launch_bounds__(128) ", f"{taken}, const float* __restrict__ parts", indented(lines))
            source += [joined, "\n"]
            launches.append(Launch(joined.name, str(-(-found.rows // 128)), 128, f"{names}, parts"))
        source.append(launcher(f"{taken}{scratch}", launches))
        comment = f"{found.rows} rows of {found.depth}; {blocks} times {chunks} blocks of {threads} threads, {together} rows a block."
        return Printed(source, arguments, shared=[SHARED], scratch=4 * found.rows * chunks if chunks > 1 else 0, comment=[comment])


def launch_of(work: Work) -> tuple[int, int, int]:
    """Returns three numbers: threads per block, rows that a block processes together, and blocks that share these rows. The goal is several waves of
    blocks on the device and at least 4 loads per thread."""
    found: Rows = work.detail
    threads = work.knob("block", 256 if found.depth >= 1024 * found.width else 128)
    together = work.knob("rows", 4 if found.rows >= 4 * work.setting.figures.units else 1)
    blocks, most = -(-found.rows // together), max(1, found.depth // (threads * found.width * 4))
    chunks = 1
    while chunks < 32 and chunks * 2 <= most and blocks * chunks < work.setting.figures.units * 16:
        chunks *= 2
    return threads, together, work.knob("row-blocks", chunks)


def finish(work: Work, total: str) -> list[str]:
    found: Rows = work.detail
    bias = "" if found.bias is None else f" + bias[{'row' if found.bias_stride else '0'}]"
    return [f"const float value = {total}{bias};", *work.tail.statements(CUDA, ["row"], "value")]
