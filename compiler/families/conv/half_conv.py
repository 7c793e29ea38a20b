"""Implicit-GEMM convolutions of bf16 or fp16 on tensor cores with a pointwise tail: 1-D to 3-D, including transposed ones.

The depth of the product runs over the window taps and, for each tap, over the channels. One copy moves eight neighbouring channels. If the image is
not channels-last, or its channel count is not a multiple of eight, a separate kernel first transposes the image. If the result is channels-last, the
rows of the product are output positions and its columns are channels; otherwise the roles are swapped. In both cases the tail writes neighbouring
elements. A strided transposed convolution is split into phases, one for each remainder of the output position modulo the stride. Each phase is a
plain convolution with a subset of the taps.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.families.conv.conv import NAMES, Convolution, describe, plain_axis, transposed_axis
from compiler.families.conv.conv_gather import choose, phase_lines
from compiler.families.family import NAME, Cost, Match, Packed, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import parameters, three
from compiler.families.product import half_cuda, half_tile
from compiler.families.product.half_kernel import Printing, kernel_parts, widest
from compiler.families.product.half_product import MOST_BATCHES, RESERVED_HERE, half_of, operand_load, worthwhile
from compiler.families.product.matmul import Operand
from compiler.families.product.tensor_cores import Product
from compiler.families.text import indented
from compiler.figures import own_arithmetic
from compiler.graph.ir import Argument, product
from compiler.graph.layout import Layout
from compiler.graph.network import Network, plain
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.expressions import POINTED
from compiler.kernel.text import WINDOW, KernelText, Launch, Part, Window, beyond, free, known, shift, stride, times
from verifier.graph import Node

LEAST_CHANNELS = 3  # per group, if there are several groups
MOST_TAPS = 31  # over all axes together, because each tap takes one bit of a mask
RESERVED = (*RESERVED_HERE, "x", "weights", "image", "channel", "position", "phase", "q", "gathered", "turned", "found",
            *(f"{name}_{axis}" for axis in "dhw" for name in ("shift", "phase", "o")))  # fmt: skip


@dataclass(frozen=True)
class Image:
    """The image layout that the product reads: element strides between images and along the axes. Channels are contiguous."""

    turned: bool  # whether the transposing kernel produces this layout
    channels: int  # channels per group, including padding
    pitch: int  # stride between positions
    image: int
    offset: int


@dataclass(frozen=True)
class HalfConvolution:
    plain: Convolution
    source: Layout
    image: Image
    last: bool  # whether the result is channels-last
    dtype: str

    @property
    def taps(self) -> tuple[int, int, int]:
        """Number of taps in every phase. Phases with fewer taps are padded with taps outside the image that have zero weights."""
        depth, height, width = (max(max(axis.taps), 1) for axis in self.plain.axes)
        return depth, height, width

    @property
    def depth(self) -> int:
        return product(self.taps) * self.image.channels

    @property
    def positions(self) -> int:
        """Positions per phase and image."""
        return product(axis.positions for axis in self.plain.axes)

    @property
    def product(self) -> Product:
        sides = (self.plain.images * self.positions, self.plain.outputs // self.plain.groups)
        rows, columns = sides if self.last else sides[::-1]
        return Product(rows, columns, self.depth, self.plain.phases * self.plain.groups, True, True, interleaved=self.plain.phases > 1)


class HalfConv:
    name = "half-conv"
    strategies = ("half-product", "fuse-matmul-tail")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        kind = NAMES.get(short(node))
        if kind is None or half_of(network, node) is None:
            return None
        found = read_half_convolution(network, node, *kind)
        own = found.plain
        if own.groups > 1 and min(own.each, own.outputs // own.groups) < LEAST_CHANNELS:
            raise Refused("a convolution with few channels in a group has no product for tensor cores")
        if sum(found.taps) > MOST_TAPS or found.product.batches > MOST_BATCHES:
            raise Refused("a convolution by a large window, or in many phases, is left to the library")
        if not worthwhile(network, node, found.product, own.flops, setting):
            raise Refused("a large convolution with little around it: by the model the library's kernel is the faster one")
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, groups=(1, 1, own.rank), detail=found,
            reads=(*own.names, *([own.bias] if own.bias else [])), reserved=RESERVED, any_layout=True,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        return plain_cost(work, work.detail.plain.flops, work.setting.figures.gflops(own_arithmetic(work.setting.precision)))

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        return half_tile.knobs_of(work, work.detail.product)

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        found: HalfConvolution = work.detail
        own, shape = found.plain, found.product
        tile = half_tile.tile_of(work, shape)
        arguments = work.arguments(("x", own.names[0]), *([("bias", own.bias)] if own.bias else []))
        weights, turned = (Argument(name, "", found.dtype, 0, read=True) for name in ("weights", "turned"))
        of_kernel = [*(argument for argument in arguments if argument.name != "x"), weights, turned] if found.image.turned else [*arguments, weights]
        gather, operand = operands(found, tile)
        along, each = (1 if found.last else 2), own.outputs // own.groups
        group = f"batch % {known(own.groups)} * {stride(each)} + " if own.groups > 1 else ""
        channel = f"const int channel = {group}{'column' if found.last else 'row'};"
        position, skip = output_position(found, "row" if found.last else "column")
        columns, rows = ([channel], position) if found.last else (position, [channel])
        width = widest(work.tail, along, each if found.last else found.positions, 8 if found.last or own.phases == 1 else 1)
        scratch = half_tile.scratch_bytes(work, shape)
        wide = "(long long)" if shape.rows * shape.columns * shape.batches >= 2**31 else ""
        at = f"{wide}({times('batch', shape.rows)} + row)" if shape.batches > 1 else f"{wide}row"
        printing = Printing(
            dtype=found.dtype, parameters=parameters(of_kernel, "__restrict__"), names=", ".join(argument.name for argument in of_kernel),
            setup=setup(found), loader=[gather[0]], loads=[gather[1], operand] if found.last else [operand, gather[1]], columns=columns, rows=rows,
            texts=["image", "channel", "position"], along=along, width=width, bias="channel" if own.bias else "", bias_along=found.last,
            elements=f"{times(at, shape.columns)} + column", window=window(found), skip=skip, scratch=found.image.turned,
            launches=turn_launch(found, scratch // 4) if found.image.turned else [], launcher=parameters([*arguments, weights], "__restrict__"),
        )  # fmt: skip
        first: list[Part] = [window(found).text(), *([turn_kernel(found)] if found.image.turned else [])]
        note = " The image is turned first." if found.image.turned else ""
        return Printed(
            [*first, *kernel_parts(NAME, work, shape, printing)], arguments,
            packed=[Packed("weights", (own.names[1],), packed_weights(found), dtype=found.dtype)],
            shared=[*half_tile.shared_sources(tile, found.dtype), half_cuda.GATHERED], flags=half_tile.flags(tile),
            scratch=scratch + (2 * own.images * own.plane * found.image.pitch if found.image.turned else 0),
            comment=[f"{describe(own)}: {half_tile.describe(work, shape)}{note}"],
        )  # fmt: skip


def read_half_convolution(network: Network, node: Node, transposed: bool, rank: int) -> HalfConvolution:
    args = [*node.args, *[None] * (8 - len(node.args))]
    image, weight, bias = args[0]["ref"], args[1]["ref"], args[2]["ref"] if args[2] else None
    numbers = [plain(a) for a in args[3:8]]
    source, weights = network.layouts[image], network.spec(weight).shape
    if isinstance(numbers[1], str) or len(source.shape) != rank + 2:
        raise Refused("padding by a word, or an image without a batch, is left to the library")
    if not network.made_once(weight):
        raise Refused("a convolution with weights that are computed in forward is left to the library")
    if bias is not None and (not network.layouts[bias].contiguous or network.layouts[bias].offset):
        raise Refused("a bias that is a view with gaps is left to the library")
    stride, padding = three(numbers[0] or 1, rank), three(numbers[1] or 0, rank, 0)
    dilation = three((numbers[4] if transposed else numbers[2]) or 1, rank)
    groups = numbers[3] or 1
    sizes, outs, kernels = (three(values, rank) for values in (source.shape[2:], node.outputs[0].shape[2:], weights[2:]))
    make = transposed_axis if transposed else plain_axis
    depth, height, width = (make(*own) for own in zip(sizes, outs, kernels, stride, padding, dilation, strict=True))
    axes = depth, height, width
    outputs, channels = node.outputs[0].shape[1], source.shape[1]
    seen = product(source.shape) * outputs if transposed else product(node.outputs[0].shape) * channels
    own = Convolution(
        transposed, rank, source.shape[0], channels, outputs, groups, axes, 2 * seen // groups * product(kernels), (image, weight), bias, 0,
    )  # fmt: skip
    if any(not count for axis in axes for count in axis.taps):
        raise Refused("a transposed convolution that leaves gaps is left to the library")
    result = network.layouts[node.name]
    last = len(result.strides) == 4 and result.strides[1] == 1 and result.shape[1] > 1
    return HalfConvolution(own, source, image_of(own, source), last, node.outputs[0].dtype)


def image_of(own: Convolution, source: Layout) -> Image:
    """Returns the image's own layout if it is channels-last with channels aligned to 16 bytes, otherwise the layout that the transposing kernel
    produces."""
    steps = source.strides[2:]
    even = all(step == steps[-1] * product(source.shape[at + 3 :]) for at, step in enumerate(steps))
    if not even:
        raise Refused("a convolution of a view with gaps is left to the library")
    direct = source.strides[1] == 1 and not any(n % 8 for n in (own.each, steps[-1], source.strides[0], source.offset))
    channels = -(-own.each // 8) * 8
    pitch = channels * own.groups
    if own.images * (source.strides[0] if direct else own.plane * pitch) >= 2**31:
        raise Refused("an image of more elements than an index counts is left to the library")
    if direct:
        return Image(False, own.each, steps[-1], source.strides[0], source.offset)
    return Image(True, channels, pitch, own.plane * pitch, 0)


def operands(found: HalfConvolution, tile: half_tile.Tile) -> tuple[tuple[str, str], str]:
    """Returns the declaration of the gathered operand, the call that loads it, and the call that loads the weights."""
    own, each = found.plain, found.plain.outputs // found.plain.groups
    lines = ("row0", tile.rows, "to_a"), ("column0", tile.columns, "to_b")
    (start, height, to), (other, width, to_weights) = lines if found.last else lines[::-1]
    shifts = ", ".join(f"shift_{name}" if own.phases > 1 else known(axis.shift[0]) for name, axis in zip("dhw", own.axes, strict=True))
    group = f" + batch % {known(own.groups)} * {stride(found.image.channels)}" if own.groups > 1 else ""
    place = ("turned" if found.image.turned else "x") + (f" + {shift(found.image.offset)}" if found.image.offset else "") + group
    declared = f"const Gathered<{WINDOW}, {known(height)}, {tile.loaders}> gathered({start}, {shifts});"
    weights = operand_load("weights", Operand(each, found.depth, found.depth, 1, (), 0), other, width, tile.loaders)
    return (declared, f"gathered.load({to}, {place}, step);"), weights.replace("to_weights", to_weights)


def setup(found: HalfConvolution) -> list[str]:
    """Sets up the phase, the start of its windows, and the weights of the phase and group."""
    own, each = found.plain, found.plain.outputs // found.plain.groups
    lines = [f"weights += {times('(long long)batch', each * found.depth)};"] if found.product.batches > 1 else []
    if own.phases > 1:
        lines += [f"const int phase = batch{f' / {known(own.groups)}' if own.groups > 1 else ''};", *phase_lines(own)]
        lines += [f"const int shift_{name} = {choose(axis.shift, f'phase_{name}')};" for name, axis in zip("dhw", own.axes, strict=True)]
    return lines


def window(found: HalfConvolution) -> Window:
    """Returns the sizes of the gathered operand."""
    own, image = found.plain, found.image
    numbers = {"LINES": own.images * found.positions, "POSITIONS": found.positions, "DEPTH": found.depth}
    numbers |= {"CHANNELS": image.channels, "IMAGE": image.image}
    stride = image.pitch
    for name, axis, taps in reversed(list(zip("DHW", own.axes, found.taps, strict=True))):
        numbers |= {f"{name}_SIZE": axis.size, f"{name}_OUT": axis.positions, f"{name}_STEP": axis.step, f"{name}_DELTA": axis.delta}
        numbers |= {f"{name}_TAPS": taps, f"{name}_STRIDE": stride}
        stride *= axis.size
    return Window(f"{NAME}_window", tuple(numbers.items()))


def output_position(found: HalfConvolution, line: str) -> tuple[list[str], str]:
    """Declares the `image` and `position` of a row or column. Also returns the condition that is true if a phase has no such position."""
    own, positions = found.plain, found.positions
    lines = [f"const int image = {line} / {known(positions)};" if own.images > 1 else "const int image = 0;"]
    q = f"{line} % {known(positions)}" if own.images > 1 else line
    if own.phases == 1:
        return [*lines, f"const int position = {q};"], ""
    lines.append(f"const int q = {q};")
    step, above, tests = positions, own.phases, []
    for at, name in enumerate("dhw"):
        axis = own.axes[at]
        step //= axis.positions
        above //= axis.up
        text = f"q / {known(step)} % {known(axis.positions)}" if axis.positions > 1 else "0"
        phase = f"batch / {known(own.groups * above)} % {known(axis.up)}"
        lines.append(f"const int o_{name} = {text}{f' * {stride(axis.up)} + {phase}' if axis.up > 1 else ''};")
        tests += [beyond(f"o_{name}", axis.out)] if axis.out % axis.up else []
    height, width = own.axes[1].out, own.axes[2].out
    return [*lines, f"const int position = ({times('o_d', height)} + o_h) * {stride(width)} + o_w;"], " || ".join(tests)


def turn_kernel(found: HalfConvolution) -> KernelText:
    """Returns the kernel that transposes the image into the layout that the gather expects."""
    own, name, source, parts = found.plain, POINTED[found.dtype], found.source, found.image.pitch // 8
    across = next(n for n in (8, 4, 2, 1) if n <= parts)
    each, per_group = own.each, found.image.channels // 8
    lanes = 256 // across
    channel = f"part / {known(per_group)} * {stride(each)} + part % {known(per_group)} * 8" if own.groups > 1 else "part * 8"
    left = f"part % {known(per_group)} * 8" if own.groups > 1 else "part * 8"
    offset = f" + {shift(source.offset)}" if source.offset else ""
    plane, image, line = known(own.plane), stride(source.strides[0]), stride(source.strides[-1])
    lines = [
        f"const int place = {times('blockIdx.x', lanes)} + threadIdx.x % {lanes}, part = {times('blockIdx.y', across)} + threadIdx.x / {lanes};",
        f"if ({beyond('place', own.images * own.plane)} || {beyond('part', parts)}) return;",
        f"const int channel = {channel}, left = {free(each, 'count')} - {left};",
        f"const {name}* const from = x + (long long)(place / {plane}) * {image} + place % {plane} * {line}{offset};",
        f"alignas(16) {name} found[8];",
        "#pragma unroll",
        f"for (int at = 0; at < 8; ++at) found[at] = at < left ? from[(long long)(channel + at) * {source.strides[1]}] : {name}(0.0f);",
        f"*(int4*)(turned + ({times('(long long)place', parts)} + part) * 8) = *(const int4*)found;",
    ]
    note = f"""// The image with its channels innermost, those of a group filled up with zeros to whole parts of 16 bytes: a thread takes one part, a
// block {lanes} positions by {across} parts.
"""
    taken = f"const {name}* __restrict__ x, {name}* __restrict__ turned"
    return KernelText.of(NAME, "turn", "__launch_bounds__(256) ", taken, indented(lines), note)


def turn_launch(found: HalfConvolution, floats: int) -> list[str | Launch]:
    """Returns the statements that launch the transposing kernel. The image in scratch memory starts after `floats` floats."""
    own, name, parts = found.plain, POINTED[found.dtype], found.image.pitch // 8
    across = next(n for n in (8, 4, 2, 1) if n <= parts)
    blocks = f"dim3({-(-own.images * own.plane // (256 // across))}, {-(-parts // across)})"
    at = -(-floats // 4) * 4
    return [
        f"{name}* const turned = ({name}*)(scratch{f' + {at}' if at else ''});",
        Launch(f"{NAME}_turn", blocks, 256, "x, turned"),
    ]


def packed_weights(found: HalfConvolution) -> str:
    """Packs the phases one after another. Each output channel is one row, which holds the group's zero-padded channels for each tap."""
    own, rank = found.plain, found.plain.rank
    axes, taps = own.axes[3 - rank :], found.taps[3 - rank :]
    parts = []
    for phase in own.every_phase():
        text = "{0}"
        if own.transposed:
            cuts: list[str] = []
            ends: list[int] = []
            for axis, p, most in zip(axes, phase[3 - rank :], taps, strict=True):
                cuts.append(f"{axis.first[p]}:{axis.first[p] + axis.every * (axis.taps[p] - 1) + 1}:{axis.every}")
                ends = [0, most - axis.taps[p], *ends]
            text = f"{text}[:, :, {', '.join(cuts)}].unflatten(0, ({own.groups}, {own.each})).transpose(1, 2).flatten(0, 1)"
            text = f"torch.nn.functional.pad({text}, {tuple(ends)})" if any(ends) else text
        text = f"{text}.movedim(1, -1)"
        if found.image.channels != own.each:
            text = f"torch.nn.functional.pad({text}, (0, {found.image.channels - own.each}))"
        parts.append(f"{text}.reshape({own.outputs}, {found.depth})")
    return f"{parts[0]}.contiguous()" if len(parts) == 1 else f"torch.cat([{', '.join(parts)}])"
