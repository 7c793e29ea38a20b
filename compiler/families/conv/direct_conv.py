"""Convolutions with few input channels on tensor cores with fp32 accuracy, without unfolding windows in shared memory.

A block keeps the weights of up to 64 output channels in shared memory and loops over tiles of positions. Each weight is split into two TF32 numbers,
which are stored in the order of the tensor core's fragments. The block loads the image patch around a tile while it multiplies the previous tile. In
each depth step (8 channels under one tap, or 4 channels under two taps), the offsets of a lane's elements are the same for all positions. The
arithmetic is the same as in tensor_cores.py; sums leave the tensor core after every two steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from compiler.families.conv.direct_conv_cuda import MULTIPLY
from compiler.families.family import NAME, Packed, Printed, Work
from compiler.families.pool import launcher, parameters
from compiler.families.product import tensor_cores
from compiler.families.text import indented, scaled, signed
from compiler.graph.ir import Argument
from compiler.kernel.functions import CUDA
from compiler.kernel.text import KernelText, Launch

if TYPE_CHECKING:
    from compiler.families.conv.conv import Convolution

MOST_STEPS = 64  # limits the depth, because with more steps a block's weights would fill the shared memory
SHARED_BYTES = 225 << 10  # limit per block on compute capability 9.0
RESERVED = ("memory", "weights", "patches", "warp", "lane", "group", "within", "bring", "to", "tile", "turn", "sum", "h0", "w0", "h", "w", "line",
            "chunk", "plane", "w_at", "h_at", "d_at", "i", "j", "r", "picture", "of_tile", "high", "low", "patch", "column",
            "finished")  # fmt: skip
SPEED, IDLE = 1.75, 35  # same meaning as in tensor_cores.Tile; fitted to bench/results/windowed-h200.json
FINISHED = (16, 40)  # channels that a warp writes together, and their stride in floats, chosen so that a store accesses 32 different banks
SHORT_RUNS = {32: 1.0, 16: 1.15, 8: 1.4}  # slowdown by positions per line: before a partial write, memory must read the rest of the sector


@dataclass(frozen=True)
class ConvLayout:
    """The layout of one convolution. Depth, height and width have the same meaning as in conv.py. `steps` is the number of steps of eight depth
    elements, which is always even."""

    found: Convolution
    threads: int
    resident: int
    rows: int  # output channels per block
    down: int  # groups of 16 output channels per warp
    across: int  # positions per tile along the width
    high: int  # positions per tile along the height

    @property
    def unit(self) -> int:
        """Channels per step."""
        return 4 if self.found.each <= 4 else 8

    @property
    def channel_groups(self) -> int:
        return -(-self.found.each // self.unit)

    @property
    def taps(self) -> int:
        return prod(axis.taps[0] for axis in self.found.axes)

    @property
    def used_steps(self) -> int:
        return self.channel_groups * self.taps if self.unit == 8 else -(-self.taps // 2)

    @property
    def steps(self) -> int:
        return self.used_steps + self.used_steps % 2

    @property
    def row_blocks(self) -> int:
        return -(-self.found.outputs // self.rows)

    @property
    def warps_down(self) -> int:
        return self.rows // (16 * self.down)

    @property
    def wide(self) -> bool:
        """True if one instruction copies four neighbouring elements of a line."""
        width = self.found.axes[2].size
        return width % 4 == 0 and self.found.offset % 4 == 0

    @property
    def lead(self) -> int:
        """Number of extra elements loaded at the start of a line to align the copies."""
        return self.found.axes[2].begin % 4 if self.wide else 0

    @property
    def lines(self) -> int:
        return (self.high - 1) * self.found.axes[1].step + self.found.axes[1].reach

    @property
    def pitch(self) -> int:
        width = self.lead + (self.across - 1) * self.found.axes[2].step + self.found.axes[2].reach
        return -(-width // 4) * 4 if self.wide else width

    @property
    def plane(self) -> int:
        """Floats per channel, padded so that the lanes of a step access 32 different banks."""
        size = self.found.axes[0].taps[0] * self.lines * self.pitch
        wanted = 8 if self.found.axes[2].step == 1 else 16
        return size + (wanted - size) % 32

    @property
    def patch(self) -> int:
        return self.channel_groups * self.unit * self.plane

    @property
    def weight_floats(self) -> int:
        return self.rows * self.steps * 16

    @property
    def shared(self) -> int:
        return 4 * (self.weight_floats + 2 * self.patch + self.threads // 32 * prod(FINISHED))

    @property
    def tiles_of(self) -> tuple[int, int, int, int]:
        """Number of tiles along the image, depth, height and width axes."""
        depth, height, width = self.found.axes
        return self.found.images, depth.out, -(-height.out // self.high), -(-width.out // self.across)

    @property
    def scattering(self) -> float:
        """Relative cost of a tile, which depends on the length of its runs of adjacent positions. Runs that span whole lines merge with the next
        line."""
        return 1.0 if self.across == self.found.axes[2].out else SHORT_RUNS[self.across]

    @property
    def tiles(self) -> int:
        return prod(self.tiles_of)

    def time(self, units: int) -> float:
        """Returns the modelled time, in the unit of `tensor_cores.modelled_time`."""
        work = self.row_blocks * self.rows * self.tiles * self.high * self.across
        return work / units / SPEED * (self.steps * 8 + IDLE)

    def places(self) -> list[tuple[int, int]]:
        """For each step, returns the offsets of its two halves from the first element that the lane reads."""
        depth, height, width = self.found.axes
        at = []
        for d in range(depth.taps[0]):
            for h in range(height.taps[0]):
                for w in range(width.taps[0]):
                    line = h * height.delta - min(0, (height.taps[0] - 1) * height.delta)
                    column = w * width.delta - min(0, (width.taps[0] - 1) * width.delta)
                    at.append((d * self.lines + line) * self.pitch + column)
        if self.unit == 8:
            found = [(group * 8 * self.plane + tap, (group * 8 + 4) * self.plane + tap) for group in range(self.channel_groups) for tap in at]
        else:
            at += at[:1] * (len(at) % 2)
            found = list(zip(at[::2], at[1::2], strict=True))
        return found + found[:1] * (self.steps - len(found))


def plan_of(work: Work, found: Convolution) -> ConvLayout | None:
    """Returns the plan, or None if the convolution does not qualify because it has many channels, groups, strides that leave gaps, or only one
    dimension."""
    steps = -(-found.each // 8) * prod(axis.taps[0] for axis in found.axes) if found.each > 4 else prod(axis.taps[0] for axis in found.axes) // 2
    if found.groups > 1 or found.phases > 1 or found.rank == 1 or steps > MOST_STEPS or any(axis.step > 2 for axis in found.axes):
        return None
    rows = 16 if found.outputs <= 16 else 32 if found.outputs <= 32 else 64
    wanted = work.knob("window-threads", 0)
    for threads, resident in ((256, 2), (512, 1), (256, 1)):
        positions = threads // 32 // max(1, rows // 32) * 32
        offered = [ConvLayout(found, threads, resident, rows, min(2, rows // 16), across, positions // across) for across in (32, 16, 8)]
        offered = [plan for plan in offered if plan.shared * resident <= SHARED_BYTES]
        if offered and wanted in (0, threads):
            return min(offered, key=lambda plan: (plan.tiles * plan.scattering, plan.patch))
    return None


def chosen(work: Work, plan: ConvLayout) -> int:
    """Returns 1 if this kernel is used. By default it is used unless each channel has only one tap, or the depth and the output channels are large
    enough for warpgroups, or the lines are so short that patches would be copied element by element."""
    found = plan.found
    deep = plan.taps == 1 or (found.outputs >= 128 and found.each * plan.taps > 256)
    short = plan.across < 16 and not plan.wide
    return work.knob("direct", int(not (deep or short)))


def knobs_of(work: Work, plan: ConvLayout) -> dict[str, tuple[tuple[int, ...], int]]:
    return {"window-threads": ((256, 512), plan.threads)}


def weights(plan: ConvLayout) -> Packed:
    """Packs the weights as fragments, ordered by group of 16 output channels, depth step, lane, and the lane's four elements."""
    found = plan.found
    text = "{0}.transpose(0, 1).flatten(2)" if found.transposed else "{0}.flatten(2)"
    rows, channels, taps = plan.rows * plan.row_blocks, plan.channel_groups * plan.unit, plan.taps
    taps += taps % 2 if plan.unit == 4 else 0
    missing = (taps - plan.taps, channels - found.each, rows - found.outputs)
    if any(missing):
        text = f"torch.nn.functional.pad({text}, (0, {missing[0]}, 0, {missing[1]}, 0, {missing[2]}))"
    if plan.unit == 8:
        text += f".unflatten(1, ({plan.channel_groups}, 8)).transpose(2, 3).flatten(1, 2)"
    else:
        text += f".unflatten(2, ({taps // 2}, 2)).permute(0, 2, 3, 1).flatten(2)"
    if plan.steps > plan.used_steps:
        text = f"torch.nn.functional.pad({text}, (0, 0, 0, {plan.steps - plan.used_steps}))"
    text += f".reshape({rows // 16}, 2, 8, {plan.steps}, 2, 4).permute(0, 3, 2, 5, 4, 1).contiguous()"
    return Packed("a", (found.names[1],), text)


def print_cuda(work: Work, plan: ConvLayout) -> Printed:
    found = plan.found
    own = [("x", found.names[0]), *([("bias", found.bias)] if found.bias else [])]
    arguments = work.arguments(*own)
    packed = [*arguments, Argument("a", "", "float32", 0, read=True)]
    taken, names = parameters(packed, "__restrict__"), ", ".join(argument.name for argument in packed)
    places = ", ".join(f"{{{a}, {b}, {c}, {d}}}" for (a, b), (c, d) in zip(plan.places()[::2], plan.places()[1::2], strict=True))
    lines = ["extern __shared__ __align__(16) float memory[];"]
    lines.append("const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, within = lane % 4;")
    lines.append(f"float* const patches = memory + {plan.weight_floats};")
    lines.append("uint4* const weights = (uint4*)memory;")
    lines.append(f"float* const finished = memory + {plan.weight_floats + 2 * plan.patch} + warp * {prod(FINISHED)};")
    lines += [*bring_weights(plan), *clear(plan), *bring(plan)]
    down = f"warp % {plan.warps_down}" if plan.warps_down > 1 else ""
    right = f"(warp / {plan.warps_down})" if plan.warps_down > 1 else "warp"
    step_h, step_w = found.axes[1].step, found.axes[2].step
    in_line = plan.across // 8
    mine = f"weights + {f'{down} * {plan.down * plan.steps * 64} + ' if down else ''}lane"
    line = f"{right} * {4 // in_line * step_h * plan.pitch}"
    column = f"group{f' * {step_w}' if step_w > 1 else ''}" + (f" + {plan.lead}" if plan.lead else "")
    arrays = f"{plan.down}, {plan.steps}, {in_line}, {step_h * plan.pitch}, {8 * step_w}"
    lines += ["bring(blockIdx.x, patches);", "copies_commit();", "int turn = 0;"]
    body = ["copies_wait<0>();", "__syncthreads();  // the patch is there, and everyone has left the other one"]
    body += [f"if (tile + gridDim.x < {plan.tiles}) bring(tile + gridDim.x, patches + (turn ^ 1) * {plan.patch});", "copies_commit();"]
    body += [
        f"float sum[{plan.down}][4][4] = {{}};",
        f"const float* const patch = patches + turn * {plan.patch} + within * {plan.plane} + {line} + {column};",
    ]
    body.append(f"multiply_window<{arrays}>(sum, {mine}, patch, {NAME}_places);")
    body += [*position(plan, right), "turn ^= 1;"]
    lines += [f"for (int tile = blockIdx.x; tile < {plan.tiles}; tile += gridDim.x) {{", *indented(body[:-1])]
    lines += [*indented(results(work, plan, down)), *indented(body[-1:]), "}"]
    blocks = min(plan.tiles, max(1, work.setting.figures.units * plan.resident // plan.row_blocks))
    constant = f"__constant__ int4 {NAME}_places[{plan.steps // 2}] = {{{places}}};  // of two steps and their halves, in the patch\n"
    kernel = KernelText.of(NAME, "kernel", f"__launch_bounds__({plan.threads}, {plan.resident}) ", taken, indented(lines))
    grid = f"dim3({blocks}, {plan.row_blocks})" if plan.row_blocks > 1 else str(blocks)
    launch = Launch(kernel.name, grid, plan.threads, names, plan.shared, asks=True)
    return Printed(
        [constant, kernel, launcher(taken, [launch])], arguments, packed=[weights(plan)], comment=[describe(plan, blocks)],
        shared=[tensor_cores.COPIES, tensor_cores.MULTIPLY, MULTIPLY],
    )  # fmt: skip


def describe(plan: ConvLayout, blocks: int) -> str:
    return (
        f"{blocks * plan.row_blocks} blocks of {plan.threads} threads walk over {plan.tiles} tiles of {plan.high} x {plan.across} positions, "
        f"{plan.rows} output channels each, depth {plan.steps} times 8; each fp32 product is three TF32 products, infinities give NaN."
    )


def bring_weights(plan: ConvLayout) -> list[str]:
    count = plan.weight_floats // 8  # groups of four weights
    first = f"blockIdx.y * {count} + at" if plan.row_blocks > 1 else "at"
    return [
        f"for (int at = threadIdx.x; at < {count}; at += {plan.threads}) {{",
        f"    const float4 value = ((const float4*)a)[{first}];",
        "    uint4 high, low;",
        *(f"    cut(value.{part}, high.{part}, low.{part});" for part in "xyzw"),
        "    weights[at / 32 * 64 + at % 32] = high;",
        "    weights[at / 32 * 64 + 32 + at % 32] = low;",
        "}",
    ]


def clear(plan: ConvLayout) -> list[str]:
    """Writes zeros for the channels that pad a step."""
    missing = plan.channel_groups * plan.unit - plan.found.each
    if not missing:
        return []
    return [
        f"for (int at = threadIdx.x; at < {missing * plan.plane}; at += {plan.threads})",
        f"    patches[{plan.found.each * plan.plane} + at] = patches[{plan.patch + plan.found.each * plan.plane} + at] = 0.0f;",
    ]


def tile_lines(plan: ConvLayout, tile: str) -> list[str]:
    """Declares the tile's `picture`, `of_tile` (the output's position along the depth axis, if there are several), `h0` and `w0`."""
    _, depth, high, wide = plan.tiles_of
    lines = [f"const int w0 = {tile}{f' % {wide} * {plan.across}' if wide > 1 else ' * 0'}, h0 = {tile} / {wide} % {high} * {plan.high};"]
    lines.append(f"const int picture = {tile} / {depth * high * wide}" + (f", of_tile = {tile} / {high * wide} % {depth};" if depth > 1 else ";"))
    return [line.replace(f"{tile} * 0", "0") for line in lines]


def bring(plan: ConvLayout) -> list[str]:
    """Declares the lambda that starts the copies of a tile's patch."""
    found = plan.found
    depth, height, width = found.axes
    unit = 4 if plan.wide else 1
    each = plan.pitch // unit
    planes = depth.taps[0]
    lines = tile_lines(plan, "tile")
    size = depth.size * height.size * width.size
    offset = f" + {found.offset}" if found.offset else ""
    lines.append(f"const float* const from = x + (long)picture * {found.channels * size}{offset};")
    lines.append("#pragma unroll 1")  # if unrolled, the loop would keep values across tiles and spill them
    lines.append(f"for (int at = threadIdx.x; at < {found.each * planes * plan.lines * each}; at += {plan.threads}) {{")
    own = [f"const int chunk = at % {each}, line = at / {each} % {plan.lines};"]
    rest = each * plan.lines
    channel = f"at / {rest * planes}"
    own.append(f"const int channel = {channel}{f', plane = at / {rest} % {planes}' if planes > 1 else ''};")
    begin_w, begin_h = width.begin - plan.lead, height.begin
    own.append(f"const int w_at = {scaled('w0', width.step)} + chunk{f' * {unit}' if unit > 1 else ''}{signed(begin_w)};")
    own.append(f"const int h_at = {scaled('h0', height.step)} + line{signed(begin_h)};")
    tests = [f"(unsigned)w_at < {width.size}", f"(unsigned)h_at < {height.size}"]
    source = f"h_at * {width.size} + w_at"
    if depth.size > 1 or planes > 1:
        here = scaled("of_tile", depth.step) if plan.tiles_of[1] > 1 else "0"
        own.append(f"const int d_at = {here}{f' + plane * {depth.delta}' if planes > 1 else ''}{signed(depth.shift[0])};")
        tests.append(f"(unsigned)d_at < {depth.size}")
        source = f"(d_at * {height.size} + h_at) * {width.size} + w_at"
    long = "(long)" if found.channels * size >= 2**31 else ""
    own.append(f"const bool inside = {' && '.join(tests)};")
    row = f"plane * {plan.lines} + line" if planes > 1 else "line"
    into = f"to + channel * {plan.plane} + {f'({row})' if '+' in row else row} * {plan.pitch} + chunk{f' * {unit}' if unit > 1 else ''}"
    own.append(f"copy_async{4 * unit}({into}, inside ? from + {long}channel * {size} + {source} : x, inside);")
    return ["const auto bring = [&](int tile, float* to) {", *indented([*lines, *indented(own), "}"]), "};"]


def position(plan: ConvLayout, right: str) -> list[str]:
    """Declares the address to which this lane writes its warp's results."""
    in_line = plan.across // 8
    h = f"h0 + {right}{f' * {4 // in_line}' if in_line < 4 else ''}" + (f" + lane / {plan.across}" if in_line < 4 else "")
    w = "w0 + lane" + (f" % {plan.across}" if in_line < 4 else "")
    return [*tile_lines(plan, "tile"), f"const int image = picture, line = {h}, column = {w};"]


def results(work: Work, plan: ConvLayout, down: str) -> list[str]:
    """Applies the tail to each of the warp's sums. The sums pass through shared memory in groups of 16 channels, so that lanes write neighbouring
    positions."""
    found = plan.found
    depth, height, width = found.axes
    channels, pitch = FINISHED
    row0 = " + ".join(filter(None, [f"blockIdx.y * {plan.rows}" if plan.row_blocks > 1 else "", f"{down} * {16 * plan.down}" if down else ""]))
    tests = [f"line < {height.out}"] * bool(height.out % plan.high) + [f"column < {width.out}"] * bool(width.out % plan.across)
    where = f"line * {width.out} + column"
    where = f"(of_tile * {height.out} + line) * {width.out} + column" if depth.out > 1 else where
    lines = [f"const int position = {where};", "#pragma unroll", f"for (int i = 0; i < {plan.down}; ++i) {{"]
    to = f"finished + (group + r * 8) * {pitch} + j * 8 + within * 2"
    own = ["#pragma unroll", "for (int j = 0; j < 4; ++j)", "#pragma unroll", "    for (int r = 0; r < 2; ++r)"]
    own += [f"        *(float2*)({to}) = make_float2(sum[i][j][r * 2], sum[i][j][r * 2 + 1]);", "__syncwarp();"]
    inner = [f"const int channel = {f'{row0} + ' if row0 else ''}i * {channels} + r;"]
    inner += [f"if (channel >= {found.outputs}) break;"] if found.outputs % plan.rows else []
    inner += [f"const float value = finished[r * {pitch} + lane]{' + bias[channel]' if found.bias else ''};"]
    inner += work.tail.statements(CUDA, ["image", "channel", "position"], "value")
    loop = ["#pragma unroll", f"for (int r = 0; r < {channels}; ++r) {{", *indented(inner), "}"]
    own += [f"if ({' && '.join(tests)}) {{", *indented(loop), "}"] if tests else loop
    own += ["__syncwarp();"]
    return [*lines, *indented(own), "}"]
