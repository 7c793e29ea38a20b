"""The printed kernel of a product of 16 bit operands: tiles, the tail over several neighbouring columns at once, parts of the depth, the launcher."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.families.epilogue import Tail
from compiler.families.family import Work
from compiler.families.pool import launcher
from compiler.families.product import half_cuda, half_tile
from compiler.families.product.tensor_cores import Product, tile_position
from compiler.families.text import indented
from compiler.graph.ir import SIZES, Access, Op
from compiler.kernel.expressions import CUDA, POINTED, Expressions, address
from compiler.kernel.text import KernelText, Launch, Part, Window, beyond, end, free, known, shift, stride, times
from compiler.kernel.vectors import copy_vector, store_vector


@dataclass
class Printing:
    """What a family gives for its product. The tail sees `row` and the first of `width` neighbouring `column`s, and whatever `rows` and `columns`
    declare of them; `texts` are the index variables of the anchor's result, of which number `along` runs with the columns."""

    dtype: str
    parameters: str  # of the kernel and the launcher
    names: str
    setup: list[str]  # declarations before the loads
    loads: list[str]  # statements that start the copies of one stage: they see `to_a`, `to_b`, `step`
    columns: list[str]
    rows: list[str]
    texts: list[str]
    along: int
    width: int
    bias: str = ""  # the index of the bias that belongs to `value`: "column"
    bias_along: bool = True  # whether it runs with the columns
    elements: str = ""  # the position of an element in scratch memory
    loader: list[str] = field(default_factory=list)  # declarations that only the loads need
    skip: str = ""  # a condition under which there is no such element
    launches: list[str | Launch] = field(default_factory=list)  # statements of the launcher before the kernel's own launch
    launcher: str = ""  # its parameters, where they are not the kernel's
    scratch: bool = False  # whether it needs scratch memory anyhow
    window: Window | None = None  # that the loads name


def widest(tail: Tail, along: int, columns: int, limit: int = 8) -> int:
    """How many neighbouring columns a thread takes: as many as all stores can write at once."""
    for width in (8, 4):
        stored = [tail.kernel.arguments[store.access.argument] for store in tail.kernel.stores]
        wide = all(
            _together(tail, store.access, SIZES[argument.dtype], along, width) for store, argument in zip(tail.kernel.stores, stored, strict=True)
        )
        if width <= limit and columns % width == 0 and wide:
            return width
    return 1


def _together(tail: Tail, access: Access, size: int, along: int, width: int) -> bool:
    """Whether `width` neighbours of one access lie side by side, on a boundary that one instruction can take."""
    inner, *others = reversed(tail.groups[along])
    rest = [stride for axis, stride in enumerate(access.strides) if axis != inner]
    sizes = tail.kernel.sizes
    runs = access.strides[inner] == 1 and (not others or sizes[inner] % width == 0)
    return runs and not access.index and not access.offset % width and all(stride % width == 0 for stride in rest) and size * width in (8, 16, 32)


def tail_lines(tail: Tail, printing: Printing, value: str) -> list[str]:
    """Statements that go on from `value`, an array of `width` sums, and store everything that follows. Neighbours are read and written together."""
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
    """The kernel, its finishing kernel where the depth is cut, and the launcher."""
    tile, split = half_tile.tile_of(work, product), half_tile.split_of(work, product)
    down, across = -(-product.rows // tile.rows), -(-product.columns // tile.columns)
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
    """The loop over the finished tile: a thread takes `width` columns of every so many rows."""
    width = printing.width
    lanes = min(tile.columns // width, tile.writers)
    thread = f"(threadIdx.x - {tile.loaders})" if tile.group else "threadIdx.x"
    at = f"{thread} % {known(lanes)}" + (f" * {stride(width)}" if width > 1 else "")
    last = f"row0 + {known(tile.rows)}"
    lines = []
    if product.rows % tile.rows:
        most = f"row0 + {shift(tile.rows)}"
        lines.append(f"const int end = {most} < {end(product.rows)} ? {most} : {end(product.rows)};")
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
    """The kernel that adds up the parts of the depth, in their order, and goes on with the tail."""
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
    """A pragma begins its line."""
    return line.lstrip() if line.lstrip().startswith("#") else line
