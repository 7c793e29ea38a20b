"""The gather stage of an implicit-GEMM convolution: computes the image and position of each product column, and loads the image elements under its
taps.

Each copying thread handles one column of the tile. If the channels divide into units of 4 to 32, the thread computes its position in the image once
for all channels of a unit under one tap. Otherwise, for example with 3 channels, it computes the position of every element separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.families.product.tensor_cores import DEPTH, Tile
from compiler.graph.ir import product
from compiler.kernel.text import below, beyond, end, known, shift, stride, times

if TYPE_CHECKING:
    from compiler.families.conv.conv import Convolution

AXES = ("d", "h", "w")


def image_setup(found: Convolution, tile: Tile) -> list[str]:
    """Computes where this thread's column of the gathered tile starts: the image, and the input that the first tap reads."""
    shape = found.product
    lines = []
    if found.phases > 1:
        lines += [f"const int phase = batch / {found.groups};" if found.groups > 1 else "const int phase = batch;", *phase_lines(found)]
        for at, axis in found.real:
            own = found.axes[at]
            taps, moved = (choose(values, f"phase_{axis}") for values in (own.taps, own.shift))
            lines.append(f"const int taps_{axis} = {taps}, shift_{axis} = {moved};")
        taps = " * ".join(f"taps_{axis}" for _, axis in found.real)
        lines.append(f"const int steps = ({times(taps, found.each)} + {DEPTH - 1}) / {DEPTH}, depth = steps * {DEPTH};")
        starts, at = [], 0
        for each in found.every_phase():
            starts.append(at)
            at += found.outputs * found.steps(each) * DEPTH
        group = f" + (long)(batch % {found.groups} * {stride(shape.rows)}) * depth" if found.groups > 1 else ""
        lines.append(f"a += {choose(tuple(starts), 'phase')}{group};")
    elif found.groups > 1:
        lines.append(f"a += {times('(long)batch', shape.rows * shape.depth)};")
    column = f"threadIdx.x % {tile.columns}" if not found.pointwise else f"threadIdx.x % {tile.columns // 4} * 4"
    lines.append(f"const int at_column = column0 + {column};")
    positions = shape.columns // found.images
    image = f"at_column / {positions}" if found.images > 1 else "0"
    group = f" + batch % {found.groups} * {stride(found.each)}" if found.groups > 1 else ""
    offset = f" + {shift(found.offset)}" if found.offset else ""
    lines.append(f"const float* from = x + ({times(f'(long)({image})', found.channels)}{group}) * {stride(found.plane)}{offset};")
    lines.append(f"const int at_position = at_column % {positions};" if found.images > 1 else "const int at_position = at_column;")
    if found.pointwise:
        return lines
    step = positions
    for at, axis in found.real:
        one = found.axes[at]
        step //= one.positions
        text = "at_position" + (f" / {step}" if step > 1 else "") + (f" % {one.positions}" if at != found.real[0][0] else "")
        text = "0" if one.positions == 1 else text
        begin = f" + shift_{axis}" if found.phases > 1 else f" - {-one.shift[0]}" if one.shift[0] else ""
        lines.append(f"const int start_{axis} = {times(text, one.step) if one.step > 1 and text != '0' else text}{begin};")
    if shape.columns % tile.columns:
        lines.append(f"const bool valid = {below('at_column', shape.columns)};")
    return lines


def phase_lines(found: Convolution) -> list[str]:
    d, h, w = (axis.up for axis in found.axes)
    of_plane, of_line = known(h * w), known(w)
    of_height = f"phase / {of_line} % {known(h)}" if d > 1 else f"phase / {of_line}"
    lines = []
    for name, one, text in (("d", d, f"phase / {of_plane}"), ("h", h, of_height), ("w", w, f"phase % {of_line}")):
        if one > 1:
            lines.append(f"const int phase_{name} = {text};" if found.phases != one else f"const int phase_{name} = phase;")
    return lines


def choose(values: tuple[int, ...], at: str) -> str:
    """Returns a chain of conditional expressions that selects a number by its index."""
    if len(set(values)) == 1:
        return known(values[0])
    text = end(values[-1])
    for index in range(len(values) - 2, -1, -1):
        text = f"{at} == {index} ? {known(values[index])} : {text}"
    return f"({text})"


def image_loads(found: Convolution, tile: Tile, pitch: int) -> list[str]:
    """Returns the statements that gather one stage of the image, which is DEPTH lines of the tile's columns."""
    shape = found.product
    bounded = shape.columns % tile.columns != 0
    plane = found.plane
    if found.pointwise:
        lanes = tile.columns // 4
        ragged = found.each % DEPTH != 0
        tests = [below("at_column", shape.columns)] * bounded + [below(f"step * {DEPTH} + k", found.each)] * ragged
        source = f"from + {times(f'(long)(step * {DEPTH} + k)', plane)} + at_position"
        source = f"inside ? {source} : x" if tests else source
        return [
            "#pragma unroll",
            f"for (int k = threadIdx.x / {lanes}; k < {DEPTH}; k += {tile.loaders // lanes}) {{",
            *([f"    const bool inside = {' && '.join(tests)};"] if tests else []),
            f"    copy_async16(to_b + {times('k', pitch)} + threadIdx.x % {lanes} * 4, {source}, {'inside' if tests else 'true'});",
            "}",
        ]
    real = {name for _, name in found.real}
    taps = [f"taps_{name}" if name in real else "1" for name in AXES] if found.phases > 1 else [str(axis.taps[0]) for axis in found.axes]
    tests = ["valid"] * bounded + [below(f"(unsigned)at_{axis}", found.axes[at].size) for at, axis in found.real if not found.axes[at].inside]
    where = found.place("at", [axis.size for axis in found.axes])
    steps = tile.loaders // tile.columns
    loop = f"for (int k = threadIdx.x / {tile.columns}; k < {DEPTH}; k += {steps})"
    into = f"to_b + {times('k', pitch)} + threadIdx.x % {tile.columns}"
    count = " * ".join(tap for tap in taps if tap != "1") or "1"
    ragged = found.phases > 1 or shape.depth != product(axis.taps[0] for axis in found.axes) * found.each
    if found.unit:
        return unit_loads(found, taps, count, tests, where, ragged, (tile.columns, steps, pitch))
    tests = [below("channel", found.each)] * ragged + tests
    lines = [f"const int channel = (step * {DEPTH} + k) / ({count}), tap = (step * {DEPTH} + k) % ({count});", *tap_lines(found, taps)]
    lines += [f"const bool inside = {' && '.join(tests)};"] if tests else []
    source = f"from + {times('(long)channel', plane)} + {where}"
    lines.append(f"copy_async4({into}, {f'inside ? {source} : x' if tests else source}, {'inside' if tests else 'true'});")
    return ["#pragma unroll", loop + " {", *(f"    {line}" for line in lines), "}"]


def unit_loads(found: Convolution, taps: list[str], count: str, tests: list[str], where: str, ragged: bool, tile: tuple[int, int, int]) -> list[str]:
    """Gathers a stage in units of channels under one tap, so a thread computes its position in the image only once per unit. `ragged` means that the
    last stage may have fewer units."""
    columns, steps, pitch = tile
    unit, chunks, parts = found.unit, found.each // found.unit, DEPTH // found.unit
    at = "unit" if parts > 1 else "step"
    lines = [f"const int unit = {times('step', parts)} + part;"] if parts > 1 else []
    bracketed = f"({count})" if "*" in count else count
    if count == "1":
        chunk, tap = at, ""
    elif chunks == 1:
        chunk, tap = "0", at
    else:
        chunk, tap = (f"{at} / {bracketed}", f"{at} % {bracketed}") if found.taps_inner else (f"{at} % {chunks}", f"{at} / {chunks}")
    lines += [*([f"const int tap = {tap};"] if tap else []), *tap_lines(found, taps)]
    if ragged and parts > 1:
        of_taps = f"tap < {bracketed if not count.isdigit() else end(int(count), 'tap')}"
        tests = [of_taps if count != "1" and (chunks == 1 or not found.taps_inner) else below(chunk, chunks), *tests]
    lines += [f"const bool inside = {' && '.join(tests)};"] if tests else []
    source = f"from + {times(f'(long)({chunk})', unit * found.plane)} + {where}" if chunks > 1 else f"from + {where}"
    lines.append(f"const float* source = {f'inside ? {source} : x' if tests else source};")
    lines += ["#pragma unroll", f"for (int k = threadIdx.x / {columns}; k < {unit}; k += {steps})"]
    line = f"({times('part', unit)} + k)" if parts > 1 else "k"
    inside = "inside" if tests else "true"
    lines.append(f"    copy_async4(to_b + {times(line, pitch)} + threadIdx.x % {columns}, source + {times('(long)k', found.plane)}, {inside});")
    if parts == 1:
        return lines
    return ["#pragma unroll", f"for (int part = 0; part < {parts}; ++part) {{", *(f"    {text}" for text in lines), "}"]


def tap_lines(found: Convolution, taps: list[str]) -> list[str]:
    """Declares the input position that `tap` reads."""
    lines = []
    texts = {"d": f"tap / ({taps[1]} * {taps[2]})", "h": f"tap / {taps[2]} % {taps[1]}", "w": f"tap % {taps[2]}"}
    for at, axis in found.real:
        one = found.axes[at]
        if one.taps == (1,):
            lines.append(f"const int at_{axis} = start_{axis};")
            continue
        text = "tap" if product(len(a.taps) * max(a.taps) for a in found.axes) == max(one.taps) * len(one.taps) else texts[axis]
        sign, delta = ("+", one.delta) if one.delta > 0 else ("-", -one.delta)
        text = times(f"({text})", delta) if delta != 1 else text
        lines.append(f"const int at_{axis} = start_{axis} {sign} {text};")
    return lines


def output_position(found: Convolution) -> list[str]:
    """Declares the `image` and `position` of `column`; exits if this phase has no such position because it has fewer positions than the others."""
    positions = found.product.columns // found.images
    lines = [f"const int image = column / {positions};" if found.images > 1 else "const int image = 0;"]
    q = f"column % {positions}" if found.images > 1 else "column"
    if found.phases == 1:
        return [*lines, f"const int position = {q};"]
    lines += [f"const int q = {q};"]
    lines += [] if found.groups == 1 else [f"const int of_phase = batch / {found.groups};"]
    phase = "batch" if found.groups == 1 else "of_phase"
    step, tests = positions, []
    above = found.phases
    for at, axis in found.real:
        one = found.axes[at]
        step //= one.positions
        above //= one.up
        text = "q" + (f" / {step}" if step > 1 else "") + (f" % {one.positions}" if at != found.real[0][0] else "")
        text = "0" if one.positions == 1 else text
        if one.up > 1:
            own = phase + (f" / {above}" if above > 1 else "") + (f" % {one.up}" if found.phases // above != one.up else "")
            text = f"{times(text, one.up)} + {own}" if one.positions > 1 else own
            tests += [beyond(f"o_{axis}", one.out)] if one.out % one.up else []
        lines.append(f"const int o_{axis} = {text};")
    lines += [f"if ({' || '.join(tests)}) return;"] if tests else []
    return [*lines, f"const int position = {found.place('o', [axis.out for axis in found.axes])};"]
