"""Implicit-GEMM convolutions on tensor cores with fp32 accuracy and a pointwise tail: 1-D to 3-D, including transposed ones.

The rows of the matrix product are the output channels, its columns are the output positions of all images, and its depth (the summed dimension) runs
over channels and window taps. The image is never unfolded in memory, because each stage gathers the elements under its taps. A strided transposed
convolution is split into phases, one for each remainder of the output position modulo the stride. Each phase is a plain convolution with a subset of
the taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compiler.families.conv import direct_conv, windowed
from compiler.families.conv.conv_gather import AXES, image_loads, image_setup, output_position
from compiler.families.family import NAME, Cost, Match, Packed, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import parameters, three
from compiler.families.product import tensor_cores
from compiler.families.product.matmul import LEAST_SIDE, MOST_BATCHES, RESERVED, Operand, operand_loads, refuse_unless_fp32
from compiler.families.product.product_kernel import Printing, kernel_parts
from compiler.families.product.tensor_cores import DEPTH, Product
from compiler.figures import own_arithmetic
from compiler.graph.ir import Argument, product
from compiler.graph.network import Network, plain
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.functions import CUDA
from compiler.kernel.text import stride, times
from verifier.graph import Node

LEAST_FLOPS = 1 << 27
THIN_FLOPS = 1 << 30  # minimum size at which half of LEAST_SIDE output channels suffice: most of each tile is empty, but the library is even slower
NAMES = {f"conv{kind}{rank}d": (kind == "_transpose", rank) for kind in ("", "_transpose") for rank in (1, 2, 3)}
RESERVED_HERE = (*RESERVED, *direct_conv.RESERVED, *windowed.RESERVED,
                 "x", "at_column", "at_position", "image", "position", "of_phase", "steps", "depth", "valid", "source", "tap", "channel",
                 "phase", "q", "from", "part", "unit",
                 *(f"{name}_{axis}" for axis in AXES for name in ("taps", "shift", "start", "at", "phase", "o")))  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """One dimension. Output ``q * up + phase`` reads inputs ``q * step + shift[phase] + j * delta`` through taps ``first[phase] + j * every``."""

    size: int
    out: int
    kernel: int
    up: int  # number of phases
    step: int
    delta: int
    every: int
    first: tuple[int, ...]
    shift: tuple[int, ...]
    taps: tuple[int, ...]

    @property
    def positions(self) -> int:
        """Largest number of positions in a phase."""
        return -(-self.out // self.up)

    @property
    def begin(self) -> int:
        """The first input that any tap of output 0 reads in the first phase."""
        return self.shift[0] + min(0, (self.taps[0] - 1) * self.delta)

    @property
    def reach(self) -> int:
        """Number of inputs that the taps of one output span, from the first to the last."""
        return (self.taps[0] - 1) * abs(self.delta) + 1

    @property
    def inside(self) -> bool:
        """True if no tap ever falls outside the input."""
        ends = [
            self.shift[p] + q * self.step + j * self.delta for p in range(self.up) for q in (0, self.positions - 1) for j in (0, self.taps[p] - 1)
        ]
        return min(ends) >= 0 and max(ends) < self.size


@dataclass(frozen=True)
class Convolution:
    transposed: bool
    rank: int
    images: int
    channels: int  # input channels
    outputs: int
    groups: int
    axes: tuple[Axis, Axis, Axis]
    flops: int
    names: tuple[str, str]  # image and weight
    bias: str | None
    offset: int  # the image's offset in its tensor

    @property
    def real(self) -> list[tuple[int, str]]:
        """The axes with more than one position and one tap."""
        return [(at, name) for at, name in enumerate(AXES) if (self.axes[at].size, self.axes[at].out, self.axes[at].kernel) != (1, 1, 1)] or [
            (2, "w")
        ]

    def place(self, prefix: str, sizes: list[int]) -> str:
        """Returns the flat position of the coordinates `prefix`_d, _h and _w in a plane of the given sizes."""
        text = ""
        for at, name in self.real:
            text = f"{prefix}_{name}" if not text else f"{times(f'({text})' if ' ' in text else text, sizes[at])} + {prefix}_{name}"
        return text

    @property
    def phases(self) -> int:
        return product(axis.up for axis in self.axes)

    @property
    def plane(self) -> int:
        return product(axis.size for axis in self.axes)

    @property
    def each(self) -> int:
        """Input channels per group."""
        return self.channels // self.groups

    @property
    def unit(self) -> int:
        """Number of channels under one tap that are contiguous in the depth. 0 means that channels are the outermost axis and that the tap is
        computed for every element."""
        return next((count for count in (DEPTH, 16, 8, 4) if self.each % count == 0), 0)

    @property
    def taps_inner(self) -> bool:
        """True if the taps of a set of channels are contiguous, so that neighbouring taps read the same lines of the image from the L1 cache. It is
        false if there are several phases, because their tap counts differ and dividing an index by a variable count is slow."""
        return self.phases == 1

    @property
    def pointwise(self) -> bool:
        """True if any four neighbouring positions read four neighbouring elements of the image."""
        return (
            all(a.taps == (1,) and a.step == 1 and a.shift == (0,) and a.out == a.size for a in self.axes)
            and self.plane % 4 == 0
            and not self.offset % 4
        )

    def steps(self, phase: tuple[int, int, int]) -> int:
        return -(-product(axis.taps[p] for axis, p in zip(self.axes, phase, strict=True)) * self.each // DEPTH)

    def every_phase(self) -> list[tuple[int, int, int]]:
        d, h, w = (range(axis.up) for axis in self.axes)
        return [(a, b, c) for a in d for b in h for c in w]

    @property
    def product(self) -> Product:
        columns = self.images * product(axis.positions for axis in self.axes)
        depth = DEPTH * max(self.steps(phase) for phase in self.every_phase())
        slow = not (self.unit or self.pointwise)
        return Product(
            self.outputs // self.groups, columns, depth, self.phases * self.groups, a_depth_inner=True, b_depth_inner=False, slow_loads=slow,
            interleaved=self.phases > 1,
        )  # fmt: skip


class Conv:
    name = "conv"
    strategies = ("split-product", "fuse-matmul-tail")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        kind = NAMES.get(short(node))
        if kind is None:
            return None
        refuse_unless_fp32(node, setting, [network.spec(a["ref"]).dtype for a in node.args if isinstance(a, dict) and "ref" in a])
        found = read_convolution(network, node, *kind)
        shape = found.product
        thin = LEAST_SIDE // 2 if found.flops >= THIN_FLOPS else LEAST_SIDE
        if shape.rows < thin or shape.columns < LEAST_SIDE or found.flops < LEAST_FLOPS or shape.batches > MOST_BATCHES:
            raise Refused("a small convolution, or one with few channels in a group, which the library does as well")
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, groups=(1, 1, found.rank), detail=found,
            reads=(*found.names, *([found.bias] if found.bias else [])), reserved=RESERVED_HERE,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        return plain_cost(work, work.detail.flops, work.setting.figures.gflops(own_arithmetic(work.setting.precision)))

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        found: dict[str, tuple[tuple[int, ...], int]] = {}
        if (wide := windowed.plan_of(work, work.detail)) is not None:
            found["windowed"] = ((0, 1), windowed.chosen(work, wide))
            if found["windowed"][1]:
                return found | windowed.knobs_of(work, wide)
        if (plan := direct_conv.plan_of(work, work.detail)) is not None:
            found["direct"] = ((0, 1), direct_conv.chosen(work, plan))
            if found["direct"][1]:
                return found | direct_conv.knobs_of(work, plan)
        return found | tensor_cores.knobs_of(work, work.detail.product)

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        found: Convolution = work.detail
        if (wide := windowed.plan_of(work, found)) is not None and windowed.chosen(work, wide):
            return windowed.print_cuda(work, wide)
        if (plan := direct_conv.plan_of(work, found)) is not None and direct_conv.chosen(work, plan):
            return direct_conv.print_cuda(work, plan)
        shape = found.product
        tile = tensor_cores.tile_of(work, shape)
        own = [("x", found.names[0]), *([("bias", found.bias)] if found.bias else [])]
        arguments = work.arguments(*own)
        weights = packed_weights(found)
        setup, gather = image_setup(found, tile), image_loads(found, tile, tensor_cores.pitches(shape, tile)[1])
        a = Operand(shape.rows, shape.depth, shape.depth, 1, (), 0)
        deep = "depth" if found.phases > 1 else ""  # the row length depends on the phase's depth
        loads = operand_loads("a", a, "row0", tile.rows, tensor_cores.pitches(shape, tile)[0], tile, deep)
        columns = output_position(found)
        row = f"batch % {found.groups} * {stride(shape.rows)} + row" if found.groups > 1 else "row"
        rows = [f"const int channel = {row};"]
        accumulator = "(value + bias[channel])" if found.bias else "value"
        tail = work.tail.statements(CUDA, ["image", "channel", "position"], accumulator)
        total = shape.rows * shape.columns * shape.batches
        cast = "(long)" if total >= 2**31 else ""
        at = f"{cast}({times('batch', shape.rows)} + row)" if shape.batches > 1 else f"{cast}row"
        printing = Printing(
            parameters=parameters([*arguments, Argument("a", "", "float32", 0, read=True)], "__restrict__"),
            names=", ".join([*(argument.name for argument in arguments), "a"]), setup=setup, load_a=loads, load_b=gather, columns=columns,
            rows=rows, tail=tail, elements=f"{times(at, shape.columns)} + column", steps="steps" if found.phases > 1 else "",
        )  # fmt: skip
        printed = Printed(
            kernel_parts(NAME, work, shape, printing), arguments, packed=[weights],
            shared=tensor_cores.shared_sources(work, shape), flags=tensor_cores.flags(work, shape),
            scratch=tensor_cores.scratch_bytes(work, shape), comment=[f"{describe(found)}: {tensor_cores.describe(work, shape)}"],
        )  # fmt: skip
        return printed


def read_convolution(network: Network, node: Node, transposed: bool, rank: int) -> Convolution:
    args: list[Any] = [*node.args, *[None] * (8 - len(node.args))]
    image, weight, bias = args[0]["ref"], args[1]["ref"], args[2]["ref"] if args[2] else None
    numbers = [plain(a) for a in args[3:8]]
    if isinstance(numbers[1], str):
        raise Refused("padding by a word is left to the library")
    layout, weights = network.layouts[image], network.spec(weight).shape
    if len(layout.shape) != rank + 2 or not layout.contiguous:
        raise Refused("a convolution of a view with gaps, or of an image without a batch, is left to the library")
    if not network.made_once(weight):
        raise Refused("a convolution with weights that are computed in forward is left to the library")
    if bias is not None and (not network.layouts[bias].contiguous or network.layouts[bias].offset):
        raise Refused("a bias that is a view with gaps is left to the library")
    stride, padding = three(numbers[0] or 1, rank), three(numbers[1] or 0, rank, 0)
    dilation = three((numbers[4] if transposed else numbers[2]) or 1, rank)
    groups = numbers[3] or 1
    sizes, outs, kernels = (three(values, rank) for values in (layout.shape[2:], node.outputs[0].shape[2:], weights[2:]))
    make = transposed_axis if transposed else plain_axis
    depth, height, width = (make(*numbers) for numbers in zip(sizes, outs, kernels, stride, padding, dilation, strict=True))
    axes = depth, height, width
    seen = product(layout.shape) * node.outputs[0].shape[1] if transposed else product(node.outputs[0].shape) * layout.shape[1]
    flops = 2 * seen // groups * product(kernels)
    return Convolution(
        transposed, rank, layout.shape[0], layout.shape[1], node.outputs[0].shape[1], groups, axes, flops, (image, weight), bias, layout.offset,
    )  # fmt: skip


def plain_axis(size: int, out: int, kernel: int, stride: int, padding: int, dilation: int) -> Axis:
    return Axis(size, out, kernel, 1, stride, dilation, 1, (0,), (-padding,), (kernel,))


def transposed_axis(size: int, out: int, kernel: int, stride: int, padding: int, dilation: int) -> Axis:
    """Builds the axis of a transposed convolution: output o reads input (o + padding - k * dilation) / stride if that is an integer."""
    first, shift, taps = [], [], []
    seen = [[k for k in range(kernel) if (phase + padding - k * dilation) % stride == 0] for phase in range(stride)]
    every = next((own[1] - own[0] for own in seen if len(own) > 1), 1)
    for phase, own in enumerate(seen):
        first.append(own[0] if own else 0)
        shift.append((phase + padding - first[-1] * dilation) // stride)
        taps.append(len(own))
    return Axis(size, out, kernel, stride, 1, -(every * dilation // stride), every, tuple(first), tuple(shift), tuple(taps))


def packed_weights(found: Convolution) -> Packed:
    """Packs the phases one after another. Each output channel is one row, as long as the phase's depth and zero-padded to whole stages."""
    rows, each = found.outputs, found.each
    axes = found.axes[3 - found.rank :]
    parts = []
    for phase in found.every_phase():
        own = phase[3 - found.rank :]
        taps = [axis.taps[p] for axis, p in zip(axes, own, strict=True)]
        if not product(taps):
            continue
        text = "{0}"
        if found.transposed:
            ends = [axis.first[p] + axis.every * (axis.taps[p] - 1) + 1 for axis, p in zip(axes, own, strict=True)]
            cuts = [f"{axis.first[p]}:{end}:{axis.every}" for axis, p, end in zip(axes, own, ends, strict=True)]
            text = f"{text}[:, :, {', '.join(cuts)}].unflatten(0, ({found.groups}, {each})).transpose(1, 2).flatten(0, 1)"
        if product(taps) > 1 and (found.unit == each or (found.unit and not found.taps_inner)):
            text = f"{text}.movedim(1, -1)"
        elif product(taps) > 1 and found.unit:
            text = f"{text}.unflatten(1, ({each // found.unit}, {found.unit})).movedim(2, -1)"
        depth = product(taps) * each
        text = f"{text}.reshape({rows}, {depth})"
        if depth % DEPTH:
            text = f"torch.nn.functional.pad({text}, (0, {-depth % DEPTH}))"
        parts.append(text)
    code = f"{parts[0]}.contiguous()" if len(parts) == 1 else f"torch.cat([{', '.join(f'{part}.flatten()' for part in parts)}])"
    return Packed("a", (found.names[1],), code)


def describe(found: Convolution) -> str:
    over = "x".join(str(axis.kernel) for axis in found.axes[3 - found.rank :])
    kind = "transposed convolution" if found.transposed else "convolution"
    grouped = f", {found.groups} groups" if found.groups > 1 else ""
    return f"{kind} of {found.channels} to {found.outputs} channels by windows of {over}{grouped}"
