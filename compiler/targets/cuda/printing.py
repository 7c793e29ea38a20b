"""Prints kernels as CUDA C++ with a plain C ABI: a launcher takes device pointers and a stream, and returns the launch error."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.families import NAME, Printed
from compiler.graph.ir import Kernel, product
from compiler.kernel.expressions import POINTED, Expressions, functions_used, narrow_used
from compiler.kernel.functions import CUDA
from compiler.kernel.one_pass import one_pass
from compiler.kernel.shape import Shape
from compiler.kernel.stripes import stages_bytes
from compiler.kernel.text import KernelText, Launch, Launcher, Part, below, beyond, named, shift, text_of, times, without_gaps
from compiler.kernel.vectors import index_type
from compiler.targets.cuda import columns as cuda_columns
from compiler.targets.cuda import split as cuda_split
from compiler.targets.cuda import stripes as cuda_stripes
from compiler.targets.cuda.body import Body, array_bytes, read_again, shared_bytes
from compiler.targets.cuda.lanes import Lanes, held_loads
from compiler.targets.cuda.math_text import TYPES, sources
from compiler.targets.cuda.merged import merged
from compiler.targets.cuda.windows import windowed

PASSES = {"split": cuda_split, "columns": cuda_columns}  # styles that use a separate kernel for each pass over the rows
UNASKED_SHARED = 46 << 10  # bytes of dynamic shared memory per launch without an opt-in: the limit is 48 KiB, and reductions declare up to 2 KiB


def print_source(kernels: list[tuple[Kernel, Shape, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]] = {}) -> str:
    """Returns the translation unit: the functions that are used, then each kernel with its launcher, preceded by its comment lines. `printed` holds
    the family kernels by name, each with the IR kernels printed inside it."""
    every = [kernel for kernel, _, _ in kernels] + [kernel for _, inside, _ in printed.values() for kernel in inside]
    used = set().union(*(functions_used(kernel) for kernel in every))
    types = [TYPES[dtype] for dtype in narrow_used(every, [a for found, _, _ in printed.values() for a in found.arguments])]
    own = [part for kernel, shape, comment in kernels for part in ("\n", *CudaKernel(kernel, shape).parts(comment))]
    includes = dict.fromkeys(["cmath", *(header for header, _ in types), *(name for found, _, _ in printed.values() for name in found.includes)])
    first = ["\n".join(f"#include <{name}>" for name in includes) + "\n", *(name for _, name in types), *sources(used, text_of(own))]
    parts = ["\n".join(first), *own, *family_parts(printed)]
    fewer = windowed(merged(parts))
    return without_gaps(text_of(fewer)) if len(fewer) < len(parts) else text_of(parts)


def family_parts(printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]]) -> list[Part]:
    """Returns the texts that several family kernels share, then each kernel with its comment above it."""
    parts: list[Part] = [f"\n{text}" for text in dict.fromkeys(text for found, _, _ in printed.values() for text in found.shared)]
    for name, (found, _, comment) in printed.items():
        parts += ["\n", *(f"// {line}\n" for line in comment), *named(found.parts, NAME, name)]
    return parts


def print_families(printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]]) -> list[str]:
    """Does the same as `family_parts` for C++, which does not merge kernels."""
    parts = list(dict.fromkeys(text for found, _, _ in printed.values() for text in found.shared))
    for name, (found, _, comment) in printed.items():
        parts.append("\n".join([*(f"// {line}" for line in comment), found.source.replace(NAME, name)]))
    return parts


class CudaKernel:
    """Prints one kernel in the style of its shape, with its launcher."""

    def __init__(self, kernel: Kernel, shape: Shape):
        body = Body(kernel, shape)
        if shape.style in PASSES or (shape.style == "rows" and not (body.resident or body.shared or shape.warp_rows)):
            kernel = one_pass(kernel)
            body = Body(kernel, shape)
        self.kernel, self.shape, self.body = kernel, shape, body

    def text(self, comment: list[str]) -> str:
        return text_of(self.parts(comment))

    def parts(self, comment: list[str]) -> list[Part]:
        return ["".join(f"// {line}\n" for line in comment), *(self.split() if self.shape.style in PASSES else self.whole())]

    def whole(self) -> list[Part]:
        """Returns a single kernel and its launcher."""
        {"elements": self.elements, "rows": self.rows, "lanes": self.lanes, "stripes": self.stripes, "scan": self.scan}[self.shape.style]()
        grid = {
            "elements": max(1, -(-product(self.kernel.sizes) // (self.body.width * self.shape.work * self.shape.threads))),
            "rows": self.kernel.rows * self.shape.cluster if self.body.shared else -(-self.kernel.rows // (self.shape.threads // self.body.team)),
            "lanes": -(-self.kernel.rows // (self.shape.threads // self.shape.groups)),
            "stripes": self.kernel.rows // self.kernel.sizes[self.kernel.outer[-1]] if self.kernel.outer else 1,
            "scan": self.kernel.rows,
        }[self.shape.style]
        kernel = self.function("kernel", self.parameters(), self.body.take())
        return [kernel, self.launcher([(kernel, grid)])]

    def function(self, part: str, parameters: list[str], lines: list[str]) -> KernelText:
        bounds = f"{self.shape.threads}, {self.shape.resident}" if self.shape.resident else f"{self.shape.threads}"
        cluster = f"__cluster_dims__({self.shape.cluster}) " if self.shape.cluster > 1 else ""
        return KernelText.of(self.kernel.name, part, f"{cluster}__launch_bounds__({bounds}) ", ", ".join(parameters), lines)

    def launcher(self, launches: list[tuple[KernelText, int]], scratch: bool = False) -> Launcher:
        parameters = [*self.parameters(), *(["double* __restrict__ scratch"] if scratch else []), "void* stream"]
        names = ", ".join([*self.kernel.arguments, *(["scratch"] if scratch else [])])
        shared = stages_bytes(self.kernel) if self.shape.style == "stripes" else shared_bytes(self.shape, self.body)
        asks = shared > UNASKED_SHARED
        statements = [Launch(kernel.name, str(grid), self.shape.threads, names, shared, asks) for kernel, grid in launches]
        return Launcher(self.kernel.name, ", ".join(parameters), tuple(statements))

    def parameters(self) -> list[str]:
        return [
            f"{'' if argument.written else 'const '}{POINTED[argument.dtype]}* __restrict__ {argument.name}"
            for argument in self.kernel.arguments.values()
        ]

    # -- styles -------------------------------------------------------------------------------------------------------------

    def elements(self) -> None:
        kernel, body, step = self.kernel, self.body, self.body.plan.passes[0]
        if not kernel.inner:
            body.open("if (threadIdx.x == 0)")
            body.statements(step, {}, {})
            body.close()
            return
        work = product(kernel.sizes) // body.width
        furthest = self.shape.threads if self.shape.work == 1 else self.shape.threads * -(-work // (self.shape.work * self.shape.threads))  # a step
        kind = index_type(kernel, list(range(len(kernel.sizes))), body.width * (work + furthest))
        wide = f"({kind})" if kind == "long" else ""
        first = f"{times(f'{wide}blockIdx.x', self.shape.threads)} + threadIdx.x"
        if self.shape.work > 1:
            body.put(f"#pragma unroll {self.shape.work}")
            body.open(f"for ({kind} at = {first}; at < {work}; at += {wide}gridDim.x * {self.shape.threads})")
        else:
            body.put(f"const {kind} at = {first};")
            if work % self.shape.threads:
                body.put(f"if ({beyond('at', work)}) return;")
        body.vector_body(step, {}, times("at", body.width) if body.width > 1 else "at", kind)
        if self.shape.work > 1:
            body.close()

    def rows(self) -> None:
        kernel, body = self.kernel, self.body
        if body.shared:
            self.open_cluster()
        else:
            body.open_rows()
        for name in body.row_arrays() if body.resident else ():
            place = f"[{body.items}][{body.width}]" if body.width > 1 else f"[{body.items}]"
            body.put(f"{'alignas(16) ' if body.width > 1 else ''}{body.kept_type(name)} {name}_row{place};")
        known: dict[str, str] = {}
        for step in body.plan.passes:
            body.row_values(step.rows, known)
            body.declare(step)
            thread = f"({times('block', self.shape.threads)} + thread)" if self.shape.cluster > 1 else "thread"
            body.items_loop(step, known, body.team, kernel.length, thread)
            for op in step.reduces:
                body.combine(op, known)
        body.finish(known, "block == 0 && thread == 0" if self.shape.cluster > 1 else "thread == 0")

    def open_cluster(self) -> None:
        """Declares the row, the thread, and the part of the row that this block keeps in shared memory, in the order in which its threads access
        it."""
        kernel, body, blocks = self.kernel, self.body, self.shape.cluster
        if kernel.outer:
            body.put(f"const long row = blockIdx.x{f' / {blocks}' if blocks > 1 else ''};")
        body.put(f"const int {f'block = blockIdx.x % {blocks}, ' if blocks > 1 else ''}thread = threadIdx.x;")
        if len(kernel.outer) > 1:
            body.unravel("row", kernel.outer, "long")
        body.put("extern __shared__ __align__(16) char held[];")
        offset = 0
        for name in body.row_arrays():
            kind = body.kept_type(name)
            pointer = f"{kind} (*{name}_row)[{body.width}] = ({kind} (*)[{body.width}])" if body.width > 1 else f"{kind}* {name}_row = ({kind}*)"
            body.put(f"{pointer}{f'(held + {shift(offset)})' if offset else 'held'};")
            offset += array_bytes(self.shape, body, name)

    def split(self) -> list[Part]:
        """Prints each pass as a separate kernel. Between the kernels, `scratch` holds the blocks' partial results for each row."""
        parameters = [*self.parameters(), "double* __restrict__ scratch"]
        parts: list[Part] = []
        launches: list[tuple[KernelText, int]] = []
        for number, (body, grid) in enumerate(PASSES[self.shape.style].passes(self.kernel, self.shape, self.body), start=1):
            launches.append((self.function(f"pass{number}", parameters, body), grid))
            parts += [launches[-1][0], "\n"]
        return [*parts, self.launcher(launches, scratch=True)]

    def read_again(self) -> dict[str, int]:
        """Returns, for each tensor, how many passes after the first one read it from memory."""
        held = held_loads(self.kernel, self.shape, self.body) if self.shape.style == "lanes" else self.body.row_arrays()
        return read_again(self.body, set(held))

    def scratch_floats(self) -> int:
        """Returns the length of the scratch tensor that the launcher takes, or 0 if it takes none."""
        return PASSES[self.shape.style].scratch_floats(self.kernel, self.shape, self.body) if self.shape.style in PASSES else 0

    def lanes(self) -> None:
        self.body.lines = Lanes(self.kernel, self.shape, self.body).lines()

    def stripes(self) -> None:
        self.body.lines = cuda_stripes.lines(self.kernel, self.shape, self.body)

    def scan(self) -> None:
        """Prints a scan in tiles with a few elements per thread. The block computes the prefix of each thread, and the total of each tile is carried
        over to the next."""
        kernel, body, step = self.kernel, self.body, self.body.plan.passes[0]
        body.open_rows()
        known: dict[str, str] = {}
        body.row_values([*step.rows, *body.plan.tail], known)
        scans = [op for op in step.elements if op.kind == "scan"]
        each, size = self.shape.tile, kernel.length
        tile = self.shape.threads * each
        for op in scans:
            body.put(f"double {op.name}_carry = 0.0;")
        body.open(f"for (long tile = 0; tile < {size}; tile += {tile})")
        for op in scans:
            body.put(f"double {op.name}_part[{each}], {op.name}_total, {op.name}_sum = 0.0;")
        body.put("#pragma unroll")
        body.open(f"for (int lane = 0; lane < {each}; ++lane)")
        body.put(f"const long at = tile + {times('thread', each)} + lane;")
        guard = size % tile != 0
        if guard:
            body.open(f"if ({below('at', size)})")
        body.unravel("at", kernel.inner, "long")
        printer = Expressions(kernel, CUDA, body.variables, dict(known))
        for op in scans:
            body.put(f"{op.name}_sum += {printer.text(op.args[0])};")
        if guard:
            body.close()
        for op in scans:
            body.put(f"{op.name}_part[lane] = {op.name}_sum;")
        body.close()
        for op in scans:
            body.put(f"const double {op.name}_before = {op.name}_carry + before_in_block<{self.shape.threads}>({op.name}_sum, {op.name}_total);")
            body.put(f"{op.name}_carry += {op.name}_total;")
        body.put("#pragma unroll")
        body.open(f"for (int lane = 0; lane < {each}; ++lane)")
        body.put(f"const long at = tile + {times('thread', each)} + lane;")
        if guard:
            body.put(f"if ({beyond('at', size)}) break;")
        body.unravel("at", kernel.inner, "long")
        local = dict(known) | {op.name: f"(float)({op.name}_before + {op.name}_part[lane])" for op in scans}
        body.statements(step, local, {})
        body.close(2)
