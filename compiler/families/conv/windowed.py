"""Stride-one convolutions on warpgroups with fp32 accuracy, without unfolding windows.

Each image element is loaded and split once for all taps that read it. In contrast, the tile of warpgroup.py gathers the elements again for every tap
(nine times for a 3 x 3 window), which takes longer than the products. Here a stage is the patch of 8 input channels that a tile of positions reads
under one tap of the depth axis. The patch is stored in shared memory in the layout that `wgmma` expects of its second operand: for every four
channels, the positions are stored line by line, 16 bytes each. A tensor core accepts any stride between groups of 8 columns; here, that stride is the
distance between two lines. All taps therefore use the same operand with different start addresses. A warpgroup multiplies 64 output channels by 7 to
16 lines of 8 positions; the number of lines is chosen to divide the image well. The weights are stored as fragments in the order of the warpgroup's
registers. The arithmetic is the same as in tensor_cores.py; sums leave the tensor core after at most 40 depth elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from compiler.families.conv import direct_conv
from compiler.families.conv.windowed_cuda import TILE
from compiler.families.family import NAME, Packed, Printed, Work
from compiler.families.pool import launcher, parameters
from compiler.families.product import tensor_cores, warpgroup
from compiler.families.text import indented, scaled, signed
from compiler.graph.ir import Argument
from compiler.kernel.functions import CUDA
from compiler.kernel.text import KernelText, Launch, below, beyond, free, shift, stride, times

if TYPE_CHECKING:
    from compiler.families.conv.conv import Convolution

CHANNELS = 8  # per stage
WIDTH = 8  # positions per line of a warpgroup's tile
MANY_LINES = tuple(range(7, 17))
ROWS = 64  # output channels per block
LOADERS = 128  # threads that load the operands; just as many threads multiply
RESIDENT = 2  # blocks that share a multiprocessor: while one starts or writes its results, the other multiplies
REGISTERS = 56, 200, 128  # registers per loading thread, per multiplying thread, and per thread while results are written
PLACES = 3  # shared-memory buffers for a stage's weights; the split patch has two
MOST_ITEMS = 4  # groups of four channels at one position that a thread loads; more groups would not fit in its registers
KEPT = 1 << 10  # bytes of shared memory that the device reserves in each block
# Fitted to bench/results/windowed-h200.json, in the unit of tensor_cores.Tile.speed. SPEED is the speed of back-to-back multiplications. WAITING is
# the speed of a block in which each stage waits for the previous one; such a block also loses IDLE multiplications per output channel at its start
# and end. FILL is the overhead of one product, expressed in columns.
SPEED, WAITING, IDLE, FILL = 3.6, 5.0, 43500, 30
RESERVED = ("tile_w", "tile_h", "of_block", "memory", "place", "rows", "step", "from")


@dataclass(frozen=True)
class BlockTile:
    """A block's tile: 64 output channels at `lines` lines of 8 positions, with `tap_lines` lines of taps per stage."""

    found: Convolution
    lines: int
    tap_lines: int

    @property
    def columns(self) -> int:
        return self.lines * WIDTH

    @property
    def tiles(self) -> tuple[int, int, int, int]:
        """Number of tiles along the image, depth, height and width axes."""
        depth, height, width = self.found.axes
        return self.found.images, depth.out, -(-height.out // self.lines), -(-width.out // WIDTH)

    @property
    def row_blocks(self) -> int:
        return -(-self.found.outputs // ROWS)

    @property
    def blocks(self) -> int:
        return prod(self.tiles) * self.row_blocks

    @property
    def taps(self) -> int:
        """Taps per stage."""
        return self.tap_lines * self.found.axes[2].kernel

    @property
    def parts(self) -> int:
        """Number of stages that share the same channels and the same tap of the depth axis."""
        return self.found.axes[1].kernel // self.tap_lines

    @property
    def steps(self) -> int:
        return self.found.each // CHANNELS * self.found.axes[0].kernel * self.parts

    @property
    def patch(self) -> int:
        _, height, width = self.found.axes
        return (self.lines + (self.tap_lines - 1) * abs(height.delta)) * (WIDTH + width.reach - 1)

    @property
    def pitch(self) -> int:
        """Stride in floats between channels of the finished tile, padded so that the lanes of a store access 32 different banks."""
        return (self.columns + 23) // 32 * 32 + 8

    @property
    def shared(self) -> int:
        """Bytes of shared memory for the stages or for the finished tile that replaces them, whichever is larger."""
        return 4 * max(PLACES * self.taps * ROWS * CHANNELS + 4 * self.patch * CHANNELS, ROWS * self.pitch)

    @property
    def fits(self) -> bool:
        return RESIDENT * (self.shared + KEPT) <= tensor_cores.SHARED_BYTES + KEPT and 2 * self.patch <= MOST_ITEMS * LOADERS

    def time(self, units: int) -> float:
        """Returns the modelled time, in the unit of `tensor_cores.modelled_time`."""
        blocks = -(-self.blocks // (units * RESIDENT)) * RESIDENT
        work = (self.columns + FILL) * self.steps * self.taps * CHANNELS
        return blocks * ROWS * max(work / SPEED, (work + IDLE) / WAITING)


def plan_of(work: Work, found: Convolution) -> BlockTile | None:
    """Returns the tile with the shortest modelled time. Returns None if the convolution does not qualify because it has strides, phases or groups,
    its channels do not fill a stage, or its windows have only one position or too many."""
    if work.setting.figures.capability != warpgroup.ARCHITECTURE or found.groups > 1 or found.phases > 1 or found.rank == 1:
        return None
    _, height, width = found.axes
    if any(axis.step > 1 for axis in found.axes) or height.kernel * width.kernel == 1 or found.each % CHANNELS:
        return None
    wanted, units = work.knob("window-lines", 0), work.setting.figures.units
    parts = [lines for lines in range(height.kernel, 0, -1) if height.kernel % lines == 0]
    offered = [BlockTile(found, lines, taps) for lines in MANY_LINES for taps in parts if wanted in (0, lines)]
    return min((plan for plan in offered if plan.fits), key=lambda plan: (plan.time(units), plan.steps, plan.patch), default=None)


def chosen(work: Work, plan: BlockTile) -> int:
    """Returns 1 if this kernel is used. By default it is used if the model predicts that the other kernels take longer."""
    units, others = work.setting.figures.units, [tensor_cores.least_time(work.setting, plan.found.product)]
    if (direct := direct_conv.plan_of(work, plan.found)) is not None and direct_conv.chosen(work, direct):
        others.append(direct.time(units))
    return work.knob("windowed", int(plan.time(units) < min(others)))


def knobs_of(work: Work, plan: BlockTile) -> dict[str, tuple[tuple[int, ...], int]]:
    return {"window-lines": (MANY_LINES, plan.lines)}


def weights(plan: BlockTile) -> Packed:
    """Packs the weights as fragments, ordered by the block's output channels, stage, tap, warp, lane, and the lane's four elements. Taps that
    traverse the image backwards are stored in reverse order."""
    found = plan.found
    axes = range(3 - found.rank, 3)
    text = "{0}.transpose(0, 1)" if found.transposed else "{0}"
    turned = [at - axes[0] + 2 for at in axes if found.axes[at].delta < 0 and found.axes[at].kernel > 1]
    text += f".flip({turned})" if turned else ""
    missing = plan.row_blocks * ROWS - found.outputs
    if missing:
        text = f"torch.nn.functional.pad({text}, ({'0, 0, ' * (found.rank + 1)}0, {missing}))"
    text += f".reshape({plan.row_blocks}, 4, 2, 8, {found.each // CHANNELS}, 2, 4, {found.axes[0].kernel * plan.parts}, {plan.taps})"
    text += ".permute(0, 4, 7, 8, 1, 3, 6, 5, 2).contiguous()"
    return Packed("a", (found.names[1],), text)


def print_cuda(work: Work, plan: BlockTile) -> Printed:
    found = plan.found
    own = [("x", found.names[0]), *([("bias", found.bias)] if found.bias else [])]
    arguments = work.arguments(*own)
    packed = [*arguments, Argument("a", "", "float32", 0, read=True)]
    taken, names = parameters(packed, "__restrict__"), ", ".join(argument.name for argument in packed)
    shape = ", ".join(str(number) for number in (plan.lines, plan.tap_lines, found.axes[2].kernel, *distances(found)))
    lines = ["extern __shared__ __align__(16) float memory[];", f"WindowTile<{shape}> tile;", *place(plan)]
    lines += [f"if (threadIdx.x < {LOADERS}) {{", *indented(bring(plan)), f"    registers_take<{REGISTERS[2]}>();", "} else {"]
    lines += [f"    registers_take<{REGISTERS[1]}>();", f"    tile.multiply(memory, {plan.steps});", "    tile.put(memory);"]
    lines += [f"    registers_give<{REGISTERS[2]}>();", "}", "__syncthreads();", *results(work, plan)]
    kernel = KernelText.of(NAME, "kernel", f"__launch_bounds__({2 * LOADERS}, {RESIDENT}) ", taken, indented(lines))
    launch = Launch(kernel.name, str(plan.blocks), 2 * LOADERS, names, plan.shared, asks=True)
    return Printed(
        [kernel, launcher(taken, [launch])], arguments, packed=[weights(plan)], shared=shared_sources(plan), flags=warpgroup.FLAGS,
        comment=[describe(plan)],
    )  # fmt: skip


def shared_sources(plan: BlockTile) -> list[str]:
    """Returns the kernel's helper functions, including a product with as many columns as a warpgroup has positions."""
    columns = plan.lines * WIDTH
    own = [] if columns == warpgroup.COLUMNS else [warpgroup.multiplication(columns)]
    return [tensor_cores.COPIES, warpgroup.SHARED, *own, TILE]


def describe(plan: BlockTile) -> str:
    return (
        f"{plan.blocks} blocks of {2 * LOADERS} threads, {ROWS} output channels at {plan.lines} x {WIDTH} positions each, "
        f"{plan.steps} stages of 8 channels under {plan.taps} taps; each fp32 product is three TF32 products, infinities give NaN."
    )


def distances(found: Convolution) -> list[int]:
    """Returns the vertical and horizontal distances between two taps."""
    return [abs(axis.delta) for axis in found.axes[1:]]


def place(plan: BlockTile) -> list[str]:
    """Declares the block's channels, image and positions. Blocks with the same positions have consecutive indices, so they read the image from the L2
    cache."""
    _, depth, high, wide = plan.tiles
    lines = [f"const int row0 = blockIdx.x % {plan.row_blocks} * {stride(ROWS)};"] if plan.row_blocks > 1 else []
    block = f"blockIdx.x / {plan.row_blocks}" if plan.row_blocks > 1 else "blockIdx.x"
    lines.append(f"const int of_block = {block}, image = of_block / {depth * high * wide};")
    lines += [f"const int o_d = of_block / {high * wide} % {depth};"] if depth > 1 else []
    return [*lines, f"const int tile_h = of_block / {wide} % {high} * {stride(plan.lines)}, tile_w = of_block % {wide} * {stride(WIDTH)};"]


def bring(plan: BlockTile) -> list[str]:
    found = plan.found
    depth, height, width = found.axes
    deep = depth.kernel
    stage = plan.taps * ROWS * CHANNELS  # floats of weights
    of_rows = f"row0 / {ROWS} * {stride(plan.steps * stage)}" if plan.row_blocks > 1 else ""
    offset = f" + {shift(found.offset)}" if found.offset else ""
    lines = [f"registers_give<{REGISTERS[0]}>();"]
    lines.append(f"const float* const from = x + {times('(long)image', found.channels * found.plane)}{offset};")
    lines += [f"a += {of_rows};"] if of_rows else []
    begins = [f"tile_{name}{signed(axis.begin)}" for name, axis in (("h", height), ("w", width))]
    lines.append(f"tile.bring(memory, {plan.steps}, {found.plane}, {', '.join(begins)}, {height.size}, {width.size}, [&](int step) {{")
    lines += [f"    return a + {times('step', stage)};", "}, [&](int step) -> const float* {"]
    stages = deep * plan.parts  # with the same channels
    channel = times(f"(long)({'step' if stages == 1 else f'step / {stages}'})", CHANNELS * found.plane)
    of_tap = f"step % {stages}" if stages > 1 else ""
    if deep == 1 and depth.size == 1 and not depth.shift[0]:
        lines.append(f"    return from + {channel};")
    else:
        here = "o_d" if plan.tiles[1] > 1 else "0"
        tap = f"{of_tap} / {plan.parts}" if plan.parts > 1 else of_tap
        here += f" + {scaled(tap, abs(depth.delta))}" if deep > 1 else ""
        lines.append(f"    const int at_d = {here}{signed(depth.begin)};")
        lines.append(f"    return {below('(unsigned)at_d', depth.size)} ? from + {channel} + {times('at_d', height.size * width.size)} : nullptr;")
    lower = f"step % {plan.parts} * {stride(plan.tap_lines * abs(height.delta))}" if plan.parts > 1 else "0"
    return [*lines, f"}}, [&](int step) {{ return {lower}; }});"]


def results(work: Work, plan: BlockTile) -> list[str]:
    """Applies the tail to each of the tile's sums; a thread handles every second channel at one position."""
    found = plan.found
    depth, height, width = found.axes
    lines = [f"const int place = threadIdx.x % 128, o_h = tile_h + place / {WIDTH}, o_w = tile_w + place % {WIDTH};"]
    tests = [beyond("place", plan.columns)] * (plan.columns < LOADERS)
    tests += [beyond("o_h", height.out)] * bool(height.out % plan.lines) + [beyond("o_w", width.out)] * bool(width.out % WIDTH)
    lines += [f"if ({' || '.join(tests)}) return;"] if tests else []
    where = f"{times('o_h', width.out)} + o_w"
    deep = times("o_d", height.out)
    lines.append(f"const int position = {f'({deep} + o_h) * {stride(width.out)} + o_w' if depth.out > 1 else where};")
    rows = str(min(ROWS, found.outputs))
    if found.outputs % ROWS and plan.row_blocks > 1:
        lines.append(f"const int rows = {free(found.outputs, 'count')} - row0 < {ROWS} ? {found.outputs} - row0 : {ROWS};")
        rows = "rows"
    inner = [f"const int channel = {'row0 + ' if plan.row_blocks > 1 else ''}row;"]
    inner.append(f"const float value = memory[{times('row', plan.pitch)} + place]{' + bias[channel]' if found.bias else ''};")
    inner += work.tail.statements(CUDA, ["image", "channel", "position"], "value")
    return [*lines, "#pragma unroll 4", f"for (int row = threadIdx.x / 128; row < {rows}; row += 2) {{", *indented(inner), "}"]
