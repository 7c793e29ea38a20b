"""Products of fp32 matrices in Triton with a pointwise tail, either on tensor cores with fp32 accuracy or in true fp32 on ordinary cores.

The arithmetic is the same as in tensor_cores.py: each operand is the sum of two TF32 numbers, three of the four products are computed, and after
every `promoted` depth elements the sums leave the tensor core and are added up in fp32 registers. Triton's own `tf32x3` keeps the sums in the tensor
core and therefore exceeds the error bound.

A Hopper tensor core reads the first operand from registers, in any layout, and the second operand from shared memory, where the depth must be
contiguous for TF32. If the depth is contiguous in `a` but not in `b`, the kernel therefore computes the transposed product. Otherwise Triton would
write `b` to shared memory element by element, with bank conflicts, which on an H200 runs at 0.7 times the speed of cuBLAS instead of 1.7 times
(measured on tasks 16 to 18 of KernelBench level 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.families.family import NAME, Printed, Work
from compiler.families.product.tensor_cores import GROUPED, Product
from compiler.targets.triton.expressions import LONG, Expressions, check_covered, uses
from compiler.targets.triton.expressions import RESERVED as WORDS
from compiler.targets.triton.source import function, launcher, named

if TYPE_CHECKING:
    from compiler.families.product.matmul import Multiplication, Operand

TILES = ((64, 64), (64, 128), (128, 64), (128, 128))  # rows x columns
SPEEDS = (0.7, 0.85, 0.85, 1.0)  # relative speeds of the inner loops; small tiles load and split more elements per product
EXACT = 0  # value of `promoted` that selects fp32 products on ordinary cores
PROMOTED = 32
EXACT_DEPTH = 16  # depth elements that fp32 products on ordinary cores load together
FINISH_BLOCK = 1024
RESERVED = tuple(sorted(WORDS | {
    "a", "b", "bias", "column", "tile", "group", "within", "height", "batch", "part", "value", "total", "a_tile", "b_tile", "a_from", "b_from",
    "M", "N", "K",
}))  # fmt: skip

SHARED = '''\
@triton.jit
def cut(value):
    """value = high + low: the nearest TF32, and what is left, of which a tensor core takes all but the last bit."""
    high = ((value.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return high, value - high


@triton.jit
def product_of(a, b):
    """a @ b at fp32's accuracy over a short depth: the small products first."""
    a_high, a_low = cut(a)
    b_high, b_low = cut(b)
    part = tl.dot(a_low, b_high, input_precision="tf32")
    part = tl.dot(a_high, b_low, part, input_precision="tf32")
    return tl.dot(a_high, b_high, part, input_precision="tf32")
'''


def tile_of(work: Work, product: Product) -> int:
    units = work.setting.figures.units

    def time(at: int) -> float:
        rows, columns = TILES[at]
        blocks = -(-product.rows // rows) * -(-product.columns // columns) * product.batches
        return -(-blocks // units) * rows * columns / SPEEDS[at]

    return work.knob("tile", min(range(len(TILES)), key=time))


def transposed(found: Multiplication) -> bool:
    return found.a.depth_stride == 1 and found.b.depth_stride != 1


def promoted_of(work: Work) -> int:
    return work.knob("promoted", PROMOTED)


def warps_of(work: Work, product: Product) -> int:
    rows, columns = TILES[tile_of(work, product)]
    return work.knob("warps", 8 if rows * columns >= 128 * 128 else 4)


def split_of(work: Work, product: Product) -> int:
    """Returns the number of parts into which the depth is split, chosen so that even a few tiles fill the device. A part has at least 256 depth
    elements."""
    rows, columns = TILES[tile_of(work, product)]
    blocks = -(-product.rows // rows) * -(-product.columns // columns) * product.batches
    units = work.setting.figures.units
    best = 1 if blocks * 2 > units else max(1, min(units // blocks, product.depth // 256, 64))
    return max(1, min(work.knob("split", best), product.steps))


def knobs_of(work: Work, product: Product) -> dict[str, tuple[tuple[int, ...], int]]:
    rows, columns = TILES[tile_of(work, product)]
    found = {
        "tile": (tuple(range(len(TILES))), tile_of(work, product)),
        "warps": ((8,) if rows * columns >= 128 * 128 else (4, 8), warps_of(work, product)),  # with four, sums of the largest tile would spill
        "stages": ((2, 3, 4), work.knob("stages", 3)),
        "promoted": ((EXACT, 16, 32), promoted_of(work)),
    }
    if product.depth >= 512:
        found["split"] = (tuple(n for n in (1, 2, 4, 8, 16, 32, 64) if n * 256 <= product.depth), split_of(work, product))
    return found


def print_product(work: Work) -> Printed:
    found: Multiplication = work.detail
    product = found.product
    for kernel in work.kernels():
        check_covered(kernel)
    rows, columns = TILES[tile_of(work, product)]
    promoted, split = promoted_of(work), split_of(work, product)
    depth = promoted or EXACT_DEPTH
    own = [("a", found.names[0]), ("b", found.names[1]), *([("bias", found.bias)] if found.bias else [])]
    arguments = work.arguments(*own)
    pointers = [argument.name for argument in arguments]
    wide = any(argument.elements >= LONG for argument in arguments) or product.rows * product.columns * product.batches * split >= LONG
    steps = -(-product.depth // (depth * split))
    edges = {
        "in_rows": "in_rows" if product.rows % rows else "",
        "in_columns": "in_columns" if product.columns % columns else "",
        "inside": "inside" if product.depth % (depth * split) else "",
    }

    turned = transposed(found)
    down, across = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
    body = tile_position(product, rows, columns, wide, (down, across))
    body += ["batch = tl.program_id(1)" + (".to(tl.int64)" if wide else "")] if product.batches > 1 else []
    body += ["part = tl.program_id(2)"] if split > 1 else []
    body += [f"in_rows = row < {product.rows}"] if edges["in_rows"] else []
    body += [f"in_columns = column < {product.columns}"] if edges["in_columns"] else []
    for name, operand in (("a", found.a), ("b", found.b)):
        body += origin(name, operand)
    body += [f"total = tl.zeros([{'N, M' if turned else 'M, N'}], tl.float32)", f"for step in range({steps}):"]
    start = f"(part * {steps} + step) * K" if split > 1 else "step * K"
    body += [f"    k = {start} + tl.arange(0, K)" + (".to(tl.int64)" if wide else "")]
    body += [f"    inside = k < {product.depth}"] if edges["inside"] else []
    body += [f"    a_tile = {load('a', found.a, 'row', f'k{across}', edges['in_rows'], edges['inside'] and f'inside{across}')}"]
    body += [f"    b_tile = {load('b', found.b, 'column', f'k{down}', edges['in_columns'], edges['inside'] and f'inside{down}')}"]
    tiles = "b_tile, a_tile" if turned else "a_tile, b_tile"
    body += [f"    total += product_of({tiles})" if promoted else f'    total = tl.dot({tiles}, total, input_precision="ieee")']
    element = f"(batch * {product.rows} + row) * {product.columns} + column" if product.batches > 1 else f"row * {product.columns} + column"
    if split > 1:
        size = product.rows * product.columns * product.batches
        cast = "part.to(tl.int64)" if wide else "part"
        mask = both(edges["in_rows"], edges["in_columns"])
        body.append(f"tl.store(scratch + {cast} * {size} + {element}, total{mask})")
    else:
        body += tail(work, found, ["batch", "row", "column"], [edges["in_rows"], edges["in_rows"], edges["in_columns"]])
    pointers += ["scratch"] if split > 1 else []
    numbers = {"M": rows, "N": columns, "K": depth}
    read = named(pointers, body)
    lines = function(f"{NAME}_kernel", [*read, *(f"{name}: tl.constexpr" for name in numbers)], body)
    options = f"num_warps={warps_of(work, product)}, num_stages={work.knob('stages', 3)}"
    programs = -(-product.rows // rows) * -(-product.columns // columns)
    grid = f"({programs}, {product.batches}, {split})" if product.batches > 1 or split > 1 else f"({programs},)"
    values = ", ".join([*read, *(f"{name}={value}" for name, value in numbers.items()), options])
    launches = [f"{NAME}_kernel[{grid}]({values})"]
    if split > 1:
        second = finish(work, found, split, wide)
        read = named(pointers, second)
        total = product.rows * product.columns * product.batches
        lines += ["", "", *function(f"{NAME}_finish", [*read, "BLOCK: tl.constexpr"], second)]
        launches.append(f"{NAME}_finish[({-(-total // FINISH_BLOCK)},)]({', '.join(read)}, BLOCK={FINISH_BLOCK}, num_warps=4)")
    lines += launcher(NAME, pointers, launches)
    return Printed(
        ["\n".join([*lines, ""])], arguments, shared=[SHARED] if promoted else [],
        scratch=4 * split * product.rows * product.columns * product.batches if split > 1 else 0, comment=describe(work, found),
    )  # fmt: skip


def describe(work: Work, found: Multiplication) -> list[str]:
    product = found.product
    rows, columns = TILES[tile_of(work, product)]
    promoted, split = promoted_of(work), split_of(work, product)
    programs = -(-product.rows // rows) * -(-product.columns // columns) * product.batches * split
    shape = f"{product.rows} x {product.depth} by {product.depth} x {product.columns}" + (f", {product.batches} times" if product.batches > 1 else "")
    arithmetic = (
        f"each fp32 product is three TF32 products, summed outside the tensor cores every {promoted} elements of depth, infinities give NaN"
        if promoted
        else "fp32 products on the usual cores"
    )
    parts = f", the depth in {split} parts" if split > 1 else ""
    order = ", computed transposed" if transposed(found) else ""
    return [f"{shape}: {programs} programs of {warps_of(work, product)} warps, tiles of {rows} x {columns}{order}{parts};", f"{arithmetic}."]


def tile_position(product: Product, rows: int, columns: int, wide: bool, axes: tuple[str, str]) -> list[str]:
    """Declares a program's `row` and `column` along the given `axes` of its tile. Programs that run concurrently share rows and columns, so they read
    the operands from the L2 cache."""
    down, across = -(-product.rows // rows), -(-product.columns // columns)
    long = ".to(tl.int64)" if wide else ""
    lines = [f"tile = tl.program_id(0){long}"]
    if down == 1 or across == 1:
        places = ("0", "tile") if down == 1 else ("tile", "0")
    elif down <= GROUPED:
        places = (f"tile % {down}", f"tile // {down}")
    else:
        lines += [f"group, within = tile // {GROUPED * across} * {GROUPED}, tile % {GROUPED * across}"]
        height = str(GROUPED)
        if down % GROUPED:
            lines.append(f"height = tl.minimum({down} - group, {GROUPED})")
            height = "height"
        places = (f"(group + within % {height})", f"within // {height}")
    for name, place, size, axis in (("row", places[0], "M", axes[0]), ("column", places[1], "N", axes[1])):
        begin = f"tl.arange(0, {size}){axis}"
        lines.append(f"{name} = {begin}" if place == "0" else f"{name} = {place} * {size} + {begin}")
    return lines


def origin(name: str, operand: Operand) -> list[str]:
    """Declares the start of the batch's operand as `{name}_from`, unless it is the pointer itself."""
    parts = [f"batch{f' // {after}' if after > 1 else ''} % {size} * {stride}" for after, size, stride in operand.batch]
    parts += [str(operand.offset)] if operand.offset else []
    return [f"{name}_from = {name} + {' + '.join(parts)}"] if parts else []


def load(name: str, operand: Operand, line: str, k: str, *masks: str) -> str:
    start = f"{name}_from" if operand.batch or operand.offset else name
    terms = [f"{text} * {stride}" if stride != 1 else text for text, stride in ((line, operand.stride), (k, operand.depth_stride))]
    mask = both(*masks)
    return f"tl.load({start} + {' + '.join(terms)}{mask}{', other=0.0' if mask else ''})"


def both(*masks: str) -> str:
    names = [mask for mask in masks if mask]
    return f", mask={' & '.join(names)}" if names else ""


def tail(work: Work, found: Multiplication, texts: list[str], masks: list[str]) -> list[str]:
    """Returns the statements that apply the tail to each element of `total`. `texts` and `masks` refer to the batch, the row and the column. A mask
    is "" if nothing is masked."""
    kernel, tail = work.tail.kernel, work.tail
    lines, value = [], "total"
    if found.bias:
        column_mask = f", mask={masks[2]}" if masks[2] else ""
        lines.append(f"value = total + tl.load(bias + {texts[2]}{column_mask})")
        value = "value"
    positions = list(zip(texts, masks, strict=True))
    if found.product.batches == 1:
        positions = positions[1:]
    variables: dict[int, str] = {}
    named: dict[int, str] = {}
    for (text, mask), axes in zip(positions, tail.groups, strict=True):
        left = 1
        for axis in axes:
            left *= kernel.sizes[axis]
        for at, axis in enumerate(axes):
            left //= kernel.sizes[axis]
            part = text if left == 1 else f"{text} // {left}"
            part = part if at == 0 else f"{part} % {kernel.sizes[axis]}"
            variables[axis] = f"({part})" if " " in part else part
            named[axis] = mask
    printer = Expressions(kernel, variables, named, {tail.load: value})
    lines += printer.declare(kernel.ops.values(), uses(kernel))
    return lines + [printer.store(store.access, printer.text(store.op)) for store in kernel.stores]


def finish(work: Work, found: Multiplication, split: int, wide: bool) -> list[str]:
    """Returns the body of the kernel that adds up the depth parts in order and applies the tail."""
    product = found.product
    size = product.rows * product.columns * product.batches
    inside = "inside" if size % FINISH_BLOCK else ""
    mask = f", mask={inside}" if inside else ""
    body = [f"at = tl.program_id(0){'.to(tl.int64)' if wide else ''} * BLOCK + tl.arange(0, BLOCK)"]
    body += [f"inside = at < {size}"] if inside else []
    body += [f"column = at % {product.columns}", f"row = at // {product.columns}{f' % {product.rows}' if product.batches > 1 else ''}"]
    body += [f"batch = at // {product.rows * product.columns}"] if product.batches > 1 else []
    body += ["total = tl.zeros([BLOCK], tl.float32)", f"for part in range({split}):"]
    body += [f"    total += tl.load(scratch + part{'.to(tl.int64)' if wide else ''} * {size} + at{mask})"]
    return body + tail(work, found, ["batch", "row", "column"], [inside] * 3)
