"""The printed kernel of a product: its launcher, the operand text from the family, and the kernel that adds up the parts of a split depth."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.families.family import Work
from compiler.families.pool import launcher
from compiler.families.product import groups, warpgroup
from compiler.families.product.tensor_cores import Product, shared_bytes, split_of, tile_of, tile_position, tile_type
from compiler.families.text import indented
from compiler.kernel.text import KernelText, Launch, Part, beyond, end, free, known, shift, stride, times

RESIDENT = 2  # target number of blocks per multiprocessor, if the registers allow it


@dataclass
class Printing:
    """The source text that a family supplies for its product. `load_a` and `load_b` start the copies of one stage of an operand, with `step` and
    `to_a` or `to_b` in scope. `setup` holds the declarations that precede them. `tail` holds the statements for one element: `row` and `column` are
    in scope, and `value` is the sum."""

    parameters: str  # parameters of the kernel and the launcher
    names: str
    setup: list[str]
    load_a: list[str]
    load_b: list[str]
    columns: list[str]  # declarations for a column that the tail needs once per thread
    rows: list[str]  # declarations for a row that the tail needs once per element
    tail: list[str]  # statements over `value`
    steps: str = ""  # number of depth steps, if it varies between blocks
    elements: str = ""  # index of an element in scratch memory, such as "(batch * 64 + row) * 32 + column"; a long if the scratch memory is large


def kernel_parts(name: str, work: Work, product: Product, printing: Printing) -> list[Part]:
    """Returns the kernel, the launcher and, if the depth is split, the finishing kernel."""
    tile, split = tile_of(work, product), split_of(work, product)
    down, across = product.down(tile.rows), -(-product.columns // tile.columns)
    steps = -(-product.steps // split)
    kind = tile_type(work, product, tile)
    scratch = ", float* __restrict__ scratch" if split > 1 else ""
    resident = 1 if tile.group or tile.warp_rows * tile.warp_columns > 1024 else RESIDENT  # without this bound, the compiler may spill registers
    body = ["extern __shared__ __align__(16) float memory[];", f"{kind} tile;", *tile_position(product, tile), *product.batch(), *printing.setup]
    count = printing.steps or (known(product.steps) if tile.group else free(product.steps, "steps"))
    if split > 1:
        most = printing.steps or end(product.steps)
        own = f"first + {shift(steps)}"
        body.append(f"const int first = {times('blockIdx.z', steps)}, last = {own} < {most} ? {own} : {most};")
    count = "last - first" if split > 1 else count
    moved = ["    step += first;"] if split > 1 else []
    load_a, load_b = ([f"    {line}" for line in lines] for lines in (printing.load_a, printing.load_b))
    if tile.group:
        body += [f"if (threadIdx.x < {tile.loaders}) {{", f"    registers_give<{warpgroup.REGISTERS[0]}>();"]
        loads = [
            f"tile.bring(memory, {count}, [&](float* to_a, int step) {{",
            *moved,
            *load_a,
            "}, [&](float* to_b, int step) {",
            *moved,
            *load_b,
            "});",
        ]
        body += [*(f"    {line}" for line in loads), "    return;", "}"]
        body += [f"registers_take<{warpgroup.REGISTERS[1]}>();", f"tile.multiply(memory, {count});"]
    else:
        body += [f"tile.run(memory, {count}, [&](float* to_a, float* to_b, int step) {{", *moved, *load_a, *load_b, "});"]
    body += ["tile.put(memory);", f"const int column = column0 + threadIdx.x % {tile.columns};"]
    if product.columns % tile.columns:
        body.append(f"if ({beyond('column', product.columns)}) return;")
    body += printing.columns if split == 1 else []
    last = f"row0 + {tile.rows}"
    if product.ragged(tile.rows):
        most, rows = f"row0 + {shift(tile.rows)}", groups.END if product.groups else end(product.rows)
        body.append(f"const int end = {most} < {rows} ? {most} : {rows};")
        last = "end"
    thread = f"(threadIdx.x - {tile.loaders})" if tile.group else "threadIdx.x"
    body.append(f"for (int row = row0 + {thread} / {tile.columns}; row < {last}; row += {tile.writers // tile.columns or 1}) {{")
    body.append(f"    const float value = memory[{times('(row - row0)', tile.columns + 8)} + threadIdx.x % {tile.columns}];")
    total = product.rows * product.columns * product.batches
    if split > 1:
        wide = "(long)" if total * split >= 2**31 else ""
        body.append(f"    scratch[{times(f'{wide}blockIdx.z', total)} + {printing.elements}] = value;")
    else:
        body += [f"    {line}" for line in [*printing.rows, *printing.tail]]
    body.append("}")
    kernel = KernelText.of(name, "kernel", f"__launch_bounds__({tile.threads}, {resident}) ", f"{printing.parameters}{scratch}", indented(body))
    grid, shared = product.grid(down * across, split), shared_bytes(work, product, tile)
    kernels = [kernel]
    launches = [Launch(kernel.name, grid, tile.threads, f"{printing.names}{', scratch' if split > 1 else ''}", shared, asks=True)]
    if split > 1:
        kernels.append(finish(name, product, printing, split))
        launches.append(Launch(kernels[1].name, str(-(-total // 256)), 256, f"{printing.names}, scratch"))
    return [*kernels, launcher(f"{printing.parameters}{scratch}", launches)]


def finish(name: str, product: Product, printing: Printing, split: int) -> KernelText:
    """Returns the kernel that adds up the depth parts in order and applies the tail."""
    total = product.rows * product.columns * product.batches
    kind = "long" if total * split >= 2**31 else "int"
    body = [f"const {kind} at = ({kind})blockIdx.x * 256 + threadIdx.x;", *([f"if ({beyond('at', total)}) return;"] if total % 256 else [])]
    body.append(f"const int column = at % {product.columns}, row = at / {product.columns}{f' % {product.rows}' if product.batches > 1 else ''};")
    body += [f"const int batch = at / {product.rows * product.columns};"] if product.batches > 1 else []
    body += [*printing.columns, *printing.rows, "float value = 0.0f;"]
    partial = f"({kind}){stride(total) if kind == 'int' else total}"
    body += [f"for (int part = 0; part < {end(split, 'part')}; ++part) value += scratch[part * {partial} + at];", *printing.tail]
    return KernelText.of(name, "finish", "__launch_bounds__(256) ", f"{printing.parameters}, const float* __restrict__ scratch", indented(body))
