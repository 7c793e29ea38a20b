"""The printed kernel of a 16-bit product: the tiles, the tail (which processes several neighbouring columns together), the depth split and the
launcher."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.families.epilogue import Tail
from compiler.families.family import Work
from compiler.families.pool import launcher
from compiler.families.product import groups, half_cuda, half_tile
from compiler.families.product.tensor_cores import Product, tile_position
from compiler.families.text import indented
from compiler.graph.ir import SIZES, Access, Op
from compiler.kernel.expressions import POINTED, Expressions, address
from compiler.kernel.functions import CUDA
from compiler.kernel.text import KernelText, Launch, Part, Window, beyond, end, free, known, shift, stride, times
from compiler.kernel.vectors import copy_vector, store_vector


@dataclass
class Printing:
    """The source text that a family supplies for its product. The tail can use `row`, `column` (the first of `width` neighbouring columns), and
    everything that `rows` and `columns` declare. `texts` are the index variables of the anchor's result; the one at index `along` runs over the
    columns."""

    dtype: str
    parameters: str  # parameters of the kernel and, unless `launcher` is given, of the launcher
    names: str
    setup: list[str]  # declarations before the loads
    loads: list[str]  # statements that start the copies of one stage; `to_a`, `to_b` and `step` are in scope
    columns: list[str]
    rows: list[str]
    texts: list[str]
    along: int
    width: int
    bias: str = ""  # the bias index that belongs to `value`, for example "column"
    bias_along: bool = True  # whether the bias has one element per column instead of per row
    elements: str = ""  # the index of an element in scratch memory
    loader: list[str] = field(default_factory=list)  # declarations that only the loads need
    skip: str = ""  # a condition that is true if the element does not exist
    launches: list[str | Launch] = field(default_factory=list)  # launcher statements that precede the kernel's own launch
    launcher: str = ""  # the launcher's parameters, if they differ from the kernel's
    scratch: bool = False  # whether the kernel needs scratch memory even if the depth is not split
    window: Window | None = None  # the window that the loads use


def widest(tail: Tail, along: int, columns: int, limit: int = 8) -> int:
    """Returns how many neighbouring columns a thread processes: as many as every store can write with one instruction."""
    for width in (8, 4):
        stored = [tail.kernel.arguments[store.access.argument] for store in tail.kernel.stores]
        wide = all(
            _together(tail, store.access, SIZES[argument.dtype], along, width) for store, argument in zip(tail.kernel.stores, stored, strict=True)
        )
        if width <= limit and columns % width == 0 and wide:
            return width
    return 1


def _together(tail: Tail, access: Access, size: int, along: int, width: int) -> bool:
    """True if one instruction can access `width` neighbours, because they are contiguous and aligned."""
    inner, *others = reversed(tail.groups[along])
    rest = [stride for axis, stride in enumerate(access.strides) if axis != inner]
    sizes = tail.kernel.sizes
    runs = access.strides[inner] == 1 and (not others or sizes[inner] % width == 0)
    return runs and not access.index and not access.offset % width and all(stride % width == 0 for stride in rest) and size * width in (8, 16, 32)


def tail_lines(tail: Tail, printing: Printing, value: str) -> list[str]:
    """Returns statements that apply the tail to `value`, an array of `width` sums, and store all results. Neighbouring elements are read and written
    together."""
    width, along, kernel = printing.width, printing.along, tail.kernel
    start = tail.variables(printing.texts)
    if width == 1:
        if printing.bias:
            return [f"const float sum = {value}[0] + (float)bias[{printing.bias}];", *tail.statements(CUDA, printing.texts, "sum")]
        return tail.statements(CUDA, printing.texts, f"{value}[0]")
    texts = [f"({text} + j)" if at == along else text for at, text in enumerate(printing.texts)]
    known: dict[str, str] = {}
    head, end = [], []
    loads = [op for op in kernel.ops.values() if op.kind == "load" and op.name != tail.load]
    for op in loads:
        dtype = kernel.arguments[op.access.argument].dtype
        if dtype in ("float32", "bfloat16", "float16") and _together(tail, op.access, SIZES[dtype], along, width):
            head.append(f"alignas(16) {POINTED[dtype]} {op.name}_of[{width}];")
            head += copy_vector(dtype, width, f"{op.name}_of", f"({op.access.argument} + {address(kernel, op.access, start)})")
            known[op.name] = f"{op.name}_of[j]" if dtype == "float32" else f"(float){op.name}_of[j]"
        elif not _varies(tail, op, along):
            known[op.name] = Expressions(kernel, CUDA, start, {}).expression(op)
    total = f"{value}[j]"
    if printing.bias and printing.bias_along:
        head.append(f"alignas(16) {half_cuda.TYPES[printing.dtype][0]} bias_of[{width}];")
        head += copy_vector(printing.dtype, width, "bias_of", f"(bias + {printing.bias})")
        total = f"{total} + (float)bias_of[j]"
    elif printing.bias:
        total = f"{total} + (float)bias[{printing.bias}]"
    printer = Expressions(kernel, CUDA, tail.variables(texts), {tail.load: "sum" if printing.bias else total, **known})
    body = [*([f"const float sum = {total};"] if printing.bias else []), *tail.declare(printer)]
    for at, store in enumerate(kernel.stores):
        argument = kernel.arguments[store.access.argument]
        name = f"{argument.name}_to" + (f"{at}" if [s.access.argument for s in kernel.stores].count(argument.name) > 1 else "")
        head.append(f"alignas(16) {POINTED[argument.dtype]} {name}[{width}];")
        body.append(f"{name}[j] = {printer.text(store.op)};")
        end += store_vector(argument.dtype, width, argument.name, address(kernel, store.access, start), name)
    return [*head, "#pragma unroll", f"for (int j = 0; j < {width}; ++j) {{", *(f"    {line}" for line in body), "}", *end]


def _varies(tail: Tail, op: Op, along: int) -> bool:
    return any(op.access.strides[axis] for axis in tail.groups[along]) or bool(op.access.index)


def sums(width: int, source: str) -> list[str]:
    if width == 1:
        return [f"const float value[1] = {{*({source})}};"]
    return [f"alignas(16) float value[{width}];", *copy_vector("float32", width, "value", f"({source})")]


def kernel_parts(name: str, work: Work, product: Product, printing: Printing) -> list[Part]:
    """Returns the kernel, the launcher and, if the depth is split, the finishing kernel."""
    tile, split = half_tile.tile_of(work, product), half_tile.split_of(work, product)
    down, across = product.down(tile.rows), -(-product.columns // tile.columns)
    steps, shared = half_tile.steps(product), half_tile.shared_bytes(work, product, tile)
    each = -(-steps // split)
    split = -(-steps // each)
    scratch = ", float* __restrict__ scratch" if split > 1 else ""
    kind = half_tile.tile_type(work, product, tile, printing.dtype)
    barriers = f"((unsigned long long*)(stages + {shift(shared - half_tile.BARRIERS)}))" if tile.group else ""
    body = ["extern __shared__ __align__(1024) char stages[];", f"{kind} tile{barriers};", *tile_position(product, tile)]
    body += [*product.batch(), *printing.setup]
    count = known(steps, "STEPS")
    if split > 1:
        own = known(each, "EACH")
        count = f"(first + {own} < {count} ? {own} : {count} - first)" if steps % each else own
        body.append(f"const int first = blockIdx.z * {free(each, 'z_stride', 'EACH')};")
    claimed = tile.group and tile.rows == 128
    load = [f"{'tile.bring' if tile.group else 'tile.run'}(stages, {count}, [&](char* to_a, char* to_b, int step) {{"]
    load += ["    step += first;"] if split > 1 else []
    load += [*(f"    {line}" for line in printing.loads), "});"]
    load = [*printing.loader, *load]
    if tile.group:
        load = [*([f"registers_leave<{half_cuda.REGISTERS[0]}>();"] if claimed else []), *load, "return;"]
        body += [f"if (threadIdx.x < {tile.loaders}) {{", *(f"    {line}" for line in load), "}"]
        body += [f"registers_claim<{half_cuda.REGISTERS[1]}>();"] if claimed else []
        body.append(f"tile.multiply(stages, {count});")
    else:
        body += load
    body.append("tile.put((float*)stages);")
    body += rows_and_columns(work, product, printing, tile, split)
    bounds = f"__launch_bounds__({tile.threads}, {tile.resident}) "
    kernel = KernelText.of(name, "kernel", bounds, printing.parameters + scratch, indented([flush(line) for line in body]), window=printing.window)
    grid = product.grid(down * across, split)
    kernels = [kernel]
    arguments = f"{printing.names}{', scratch' if split > 1 else ''}"
    launches = [*printing.launches, Launch(kernel.name, grid, tile.threads, arguments, shared, asks=True)]
    if split > 1:
        kernels.append(finish(name, work, product, printing, split))
        total = product.rows * product.columns * product.batches // printing.width
        launches.append(Launch(kernels[1].name, str(-(-total // 256)), 256, f"{printing.names}, scratch"))
    scratch = ", float* __restrict__ scratch" if split > 1 or printing.scratch else ""
    return [*kernels, launcher(f"{printing.launcher or printing.parameters}{scratch}", launches)]


def rows_and_columns(work: Work, product: Product, printing: Printing, tile: half_tile.Tile, split: int) -> list[str]:
    """Returns the loop over the finished tile, in which a thread processes `width` columns of every n-th row."""
    width = printing.width
    lanes = min(tile.columns // width, tile.writers)
    thread = f"(threadIdx.x - {tile.loaders})" if tile.group else "threadIdx.x"
    at = f"{thread} % {known(lanes)}" + (f" * {stride(width)}" if width > 1 else "")
    last = f"row0 + {known(tile.rows)}"
    lines = []
    if product.ragged(tile.rows):
        most, rows = f"row0 + {shift(tile.rows)}", groups.END if product.groups else end(product.rows)
        lines.append(f"const int end = {most} < {rows} ? {most} : {rows};")
        last = "end"
    inside = [*printing.columns] if split == 1 else []
    inside.append(f"for (int row = row0 + {thread} / {known(lanes)}; row < {last}; row += {known(tile.writers // lanes)}) {{")
    source = f"(const float*)stages + {times('(row - row0)', tile.columns + 8)} + column - column0"
    if split > 1:
        total = product.rows * product.columns * product.batches
        wide = "(long long)" if total * split >= 2**31 else ""
        inside += [f"    {line}" for line in sums(width, source)]
        place = f"{wide}blockIdx.z * {stride(total, 'blockIdx.z', 'EACH')} + {printing.elements}"
        stored = store_vector("float32", width, "scratch", place, "value") if width > 1 else [f"scratch[{place}] = value[0];"]
        inside += [f"    {line}" for line in stored]
    else:
        missing = [f"if ({printing.skip}) continue;"] if printing.skip else []
        inside += [f"    {line}" for line in [*printing.rows, *missing, *sums(width, source), *tail_lines(work.tail, printing, "value")]]
    inside.append("}")
    if lanes * width < tile.columns:
        last = f"column0 + {known(tile.columns)}"
        test = f"column < {last}" + (f" && column < {known(product.columns)}" if product.columns % tile.columns else "")
        loop = f"for (int column = column0 + {at}; {test}; column += {known(lanes * width)}) {{"
        return [*lines, loop, *(f"    {line}" for line in inside), "}"]
    lines.append(f"const int column = column0 + {at};")
    lines += [f"if ({beyond('column', product.columns)}) return;"] if product.columns % tile.columns else []
    return lines + inside


def finish(name: str, work: Work, product: Product, printing: Printing, split: int) -> KernelText:
    """Returns the kernel that adds up the depth parts in order and applies the tail."""
    total, width = product.rows * product.columns * product.batches, printing.width
    kind = "long long" if total * split >= 2**31 else "int"
    body = [f"const {kind} at = (({kind})blockIdx.x * 256 + threadIdx.x){f' * {stride(width)}' if width > 1 else ''};"]
    body += [f"if ({beyond('at', total)}) return;"] if total // width % 256 else []
    body.append(f"const int column = at % {product.columns}, row = at / {product.columns}{f' % {product.rows}' if product.batches > 1 else ''};")
    body += [f"const int batch = at / {product.rows * product.columns};"] if product.batches > 1 else []
    body += [*printing.columns, *printing.rows, *([f"if ({printing.skip}) return;"] if printing.skip else [])]
    body += [f"float value[{width}] = {{}};", "#pragma unroll 4", f"for (int part = 0; part < {end(split, 'part')}; ++part) {{"]
    source = f"scratch + part * ({kind}){stride(total) if kind == 'int' else total} + at"
    if width == 1:
        body.append(f"    value[0] += *({source});")
    else:
        taken = copy_vector("float32", width, "own", f"({source})")
        body += [f"    alignas(16) float own[{width}];", *(f"    {line}" for line in taken), "#pragma unroll"]
        body.append(f"    for (int j = 0; j < {width}; ++j) value[j] += own[j];")
    body += ["}", *tail_lines(work.tail, printing, "value")]
    pointers = f"{printing.parameters}, const float* __restrict__ scratch"
    return KernelText.of(name, "finish", "__launch_bounds__(256) ", pointers, indented([flush(line) for line in body]))


def flush(line: str) -> str:
    """Removes the indentation of preprocessor lines."""
    return line.lstrip() if line.lstrip().startswith("#") else line
