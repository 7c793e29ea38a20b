"""Depthwise convolutions with one or more outputs per channel, and with a pointwise tail and prologue.

This includes convolutions from one channel to a few. On tensor cores, three of every four input channels and most of the 16 output channels would be
padding, that is, multiplications by zero.

The kernel is memory-bound. Each GPU thread computes a vertical strip of outputs, so an input row that it reads serves every window that contains the
row. The weights of its channel stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compiler.families.family import Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import AXES, one_kernel, three
from compiler.families.product.matmul import LEAST_SIDE
from compiler.graph.ir import FLOATS, product
from compiler.graph.network import Network, plain
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.expressions import POINTED, widened
from compiler.kernel.functions import CUDA
from compiler.kernel.text import below, beyond, stride, times
from verifier.graph import Node

NAMES = {f"conv{rank}d": rank for rank in (1, 2, 3)}
MOST_TAPS = 64  # largest number of taps whose weights fit in registers along with the strip
RESERVED = ("x", "weight", "bias", "taps", "sums", "image", "plane", "channel", "source", "at", "d", "h", "w", "o", "v", "z", "value", "tap", "below",
            *(f"{axis}_{end}" for axis in AXES for end in ("at", "k")))  # fmt: skip


@dataclass(frozen=True)
class Depthwise:
    """Sizes over (depth, height, width); dimensions that an operator does not have are 1."""

    rank: int
    images: int
    channels: int  # input channels
    each: int  # outputs per channel
    size: tuple[int, int, int]
    out: tuple[int, int, int]
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    padding: tuple[int, int, int]
    dilation: tuple[int, int, int]
    names: tuple[str, str]  # image and weight
    bias: str | None

    def reach(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1


class DepthwiseConv:
    name = "depthwise"
    strategies = ("own-depthwise", "fuse-pointwise")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        rank = NAMES.get(short(node))
        if rank is None:
            return None
        args: list[Any] = [*node.args, *[None] * (7 - len(node.args))]
        image, weight, bias = args[0]["ref"], args[1]["ref"], args[2]["ref"] if args[2] else None
        stride, padding, dilation, groups = (plain(a) for a in args[3:7])
        groups = groups or 1
        layout, weights = network.layouts[image], network.spec(weight).shape
        if len(layout.shape) != rank + 2 or groups != layout.shape[1] or weights[1] != 1 or (groups == 1 and weights[0] >= LEAST_SIDE):
            return None
        if network.spec(image).dtype not in FLOATS or any(network.spec(name).dtype != network.spec(image).dtype for name in (weight, bias) if name):
            raise Refused("a convolution of integers, double precision or several types is left to the library")
        if isinstance(padding, str) or product(weights[2:]) > MOST_TAPS:
            raise Refused("a depthwise convolution by large windows, or padded by a word, is left to the library")
        if not layout.contiguous or layout.offset or any(not network.layouts[n].contiguous or network.layouts[n].offset for n in (weight, bias) if n):
            raise Refused("a depthwise convolution of a view with gaps is left to the library")
        shape = node.outputs[0].shape
        found = Depthwise(
            rank, shape[0], groups, shape[1] // groups, three(layout.shape[2:], rank), three(shape[2:], rank), three(weights[2:], rank),
            three(stride or 1, rank), three(padding or 0, rank, 0), three(dilation or 1, rank), (image, weight), bias,
        )  # fmt: skip
        recompute = product(found.kernel) * product(found.out) * found.each / product(found.size)
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, groups=(1, 1, *(1,) * rank), detail=found, reserved=RESERVED,
            reads=(image, weight, *([bias] if bias else [])), prologue=(image,) if layout.base == image else (),
            prologue_groups=(2, *(1,) * rank), recompute=recompute,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        found: Depthwise = work.detail
        return plain_cost(work, 2 * found.images * found.channels * found.each * product(found.out) * product(found.kernel))

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        found: dict[str, tuple[tuple[int, ...], int]] = {"block": ((64, 128, 256, 512), work.knob("block", 256))}
        if work.detail.out[1] > 1:
            found["strip"] = ((1, 2, 4, 8), strip_of(work))
        return found

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        found: Depthwise = work.detail
        strip, threads = strip_of(work), work.knob("block", 256)
        strips = -(-found.out[1] // strip)
        channels = found.channels * found.each
        total = found.images * channels * found.out[0] * strips * found.out[2]
        kind = "long" if total >= 2**31 - threads else "int"
        lines = [f"const {kind} at = {times(f'({kind})blockIdx.x', threads)} + threadIdx.x;"]
        lines += [f"if ({beyond('at', total)}) return;"] if total % threads else []
        lines.append(f"const int w = at % {found.out[2]};")
        step = found.out[2]
        if found.rank > 1:
            lines.append(f"const int h = at / {step} % {strips}{f' * {stride(strip)}' if strip > 1 else ''};")
            step *= strips
        if found.rank > 2:
            lines.append(f"const int d = at / {step} % {found.out[0]};")
            step *= found.out[0]
        lines.append(f"const int plane = at / {step}, channel = plane % {channels}, image = plane / {channels};")
        lines += self.body(work, strip)
        own = [("x", found.names[0]), ("weight", found.names[1]), *([("bias", found.bias)] if found.bias else [])]
        arguments = work.arguments(*own)
        grid = -(-total // threads)
        source = one_kernel(lines, arguments, grid, threads)
        over = "x".join(map(str, found.kernel[3 - found.rank :]))
        each = f"{strip} outputs below one another a thread" if strip > 1 else "one output a thread"
        return Printed(
            source, arguments, comment=[f"windows of {over} of each of {found.channels} channels; {grid} blocks of {threads} threads, {each}."]
        )

    def body(self, work: Work, strip: int) -> list[str]:
        found: Depthwise = work.detail
        stored = work.network.spec(found.names[0]).dtype
        taps, prologue = product(found.kernel), work.prologues.get(found.names[0])
        first = times("channel", taps)
        lines = [f"float taps[{taps}], sums[{strip}] = {{}};", "#pragma unroll"]
        lines.append(f"for (int tap = 0; tap < {taps}; ++tap) taps[tap] = {widened(f'weight[{first} + tap]', stored)};")
        source = f"({times('image', found.channels)} + channel{f' / {found.each}' if found.each > 1 else ''})"
        if prologue is None:
            lines.append(f"const {POINTED[stored]}* source = x + {times(f'(long){source}', product(found.size))};")
        else:
            lines.append(f"const int z = {source[1:-1]};")
        depth = 0

        def put(line: str) -> None:
            lines.append(line if line.startswith("#") else "    " * depth + line)

        for at in range(3 - found.rank, 3):
            axis, size, dilation = AXES[at], found.size[at], found.dilation[at]
            rows = at == 1 and strip > 1
            steps = (strip - 1) * found.stride[at] + found.reach(at) if rows else found.kernel[at]
            put("#pragma unroll")
            put(f"for (int {axis}_k = 0; {axis}_k < {steps}; ++{axis}_k) {{")
            depth += 1
            along = f"{axis}_k" if rows or dilation == 1 else times(f"{axis}_k", dilation)
            scaled = times(axis, found.stride[at]) if found.stride[at] > 1 else axis
            put(f"const int {axis}_at = {scaled}{f' - {found.padding[at]}' if found.padding[at] else ''} + {along};")
            last = (-(-found.out[at] // strip) * strip if rows else found.out[at]) - 1
            if found.padding[at] or last * found.stride[at] + found.reach(at) > size:
                put(f"if ({beyond(f'(unsigned){axis}_at', size)}) continue;")
        where = ""
        for at in range(3 - found.rank, 3):
            where = f"{AXES[at]}_at" if not where else f"{times(f'({where})' if ' ' in where else where, found.size[at])} + {AXES[at]}_at"
        if prologue is None:
            put(f"const float v = {widened(f'source[{where}]', stored)};")
        else:
            for line in prologue.statements(CUDA, ["z", *(f"{AXES[at]}_at" for at in range(3 - found.rank, 3))], "v"):
                put(line)
        outer = f"{times('d_k', product(found.kernel[1:]))} + " if found.rank > 2 else ""
        if strip > 1:
            put("#pragma unroll")
            put(f"for (int o = 0; o < {strip}; ++o) {{")
            put(f"    const int below = h_k - {times('o', found.stride[1]) if found.stride[1] > 1 else 'o'};")
            dilation = found.dilation[1]
            row, test = ("below", "") if dilation == 1 else (f"below / {dilation}", f" && below % {dilation} == 0")
            put(f"    if (below >= 0 && {below('below', found.reach(1))}{test}) sums[o] += v * taps[{outer}{times(row, found.kernel[2])} + w_k];")
            put("}")
        else:
            row = f"{times('h_k', found.kernel[2])} + " if found.rank > 1 else ""
            put(f"sums[0] += v * taps[{outer}{row}w_k];")
        while depth:
            depth -= 1
            put("}")
        lines += ["#pragma unroll", f"for (int o = 0; o < {strip}; ++o) {{"] if strip > 1 else []
        depth = int(strip > 1)
        if strip > 1 and found.out[1] % strip:
            put(f"if ({beyond('h + o', found.out[1])}) break;")
        bias = f" + {widened('bias[channel]', stored)}" if found.bias else ""
        put(f"const float value = sums[{'o' if strip > 1 else '0'}]{bias};")
        names = {"d": "d", "h": "(h + o)" if strip > 1 else "h", "w": "w"}
        for line in work.tail.statements(CUDA, ["image", "channel", *(names[AXES[at]] for at in range(3 - found.rank, 3))], "value"):
            put(line)
        return [*lines, *(["}"] if strip > 1 else [])]


def strip_of(work: Work) -> int:
    found: Depthwise = work.detail
    if found.out[1] == 1:
        return 1
    return work.knob("strip", 4 if found.reach(1) > found.stride[1] and product(found.kernel) <= 25 else 1)
