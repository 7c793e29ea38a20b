"""Prints kernels as C++ with OpenMP, which distributes rows over threads and the elements of a row over SIMD lanes."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.families import Printed
from compiler.graph.ir import INNER, Kernel, Op, Store, product
from compiler.kernel.expressions import C_TYPES, POINTED, Expressions, address, constant, functions_used, narrow_used
from compiler.kernel.functions import CPP
from compiler.kernel.schedule import Pass, Schedule, schedule
from compiler.kernel.shape import Shape
from compiler.kernel.text import plain, width
from compiler.targets.cpp.math_text import STREAM, TYPES, sources
from compiler.targets.cuda.printing import print_families

STACK_FLOATS = 16384  # longest line kept on a thread's stack
START = {"sum": "0.0f", "max": "-INFINITY", "min": "INFINITY", "amax": "-INFINITY", "amin": "INFINITY"}
CLAUSE = {"sum": "+", "max": "max", "min": "min", "amax": "max", "amin": "min"}


def print_source(kernels: list[tuple[Kernel, Shape, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]] = {}) -> str:
    """Returns the translation unit: the functions that are used, then each kernel with its comment lines above it. `printed` is the same as in CUDA's
    `print_source`."""
    every = [kernel for kernel, _, _ in kernels] + [kernel for _, inside, _ in printed.values() for kernel in inside]
    used = set().union(*(functions_used(kernel) for kernel in every))
    includes = ["<cmath>", "<cstddef>"] + (["<immintrin.h>"] if any(shape.stream for _, shape, _ in kernels) else [])
    includes += dict.fromkeys(f"<{name}>" for found, _, _ in printed.values() for name in found.includes)
    parts = ["\n".join(f"#include {name}" for name in includes) + "\n"]
    parts += [TYPES[dtype] for dtype in narrow_used(every, [a for found, _, _ in printed.values() for a in found.arguments])]
    parts += sources({kind for kind in used if not (kind in ("max", "min") and not _float_bounds(every, kind))})
    parts += [STREAM] if any(shape.stream for _, shape, _ in kernels) else []
    parts += [CppKernel(kernel, shape).text(comment) for kernel, shape, comment in kernels]
    return "\n".join([*parts, *print_families(printed)])


def _float_bounds(kernels: list[Kernel], kind: str) -> bool:
    return any(op.kind == kind and op.dtype == "float32" for kernel in kernels for op in kernel.ops.values())


class CppKernel:
    def __init__(self, kernel: Kernel, shape: Shape):
        self.kernel, self.shape = kernel, shape
        self.plan: Schedule = schedule(kernel, shape.cache and shape.style == "rows")
        outer = ["row"] if len(kernel.outer) == 1 else [f"row{n}" for n in range(len(kernel.outer))]
        inner = INNER[: len(kernel.inner)][::-1]
        self.variables = dict(zip(kernel.outer, outer, strict=True)) | dict(zip(kernel.inner, inner, strict=True))
        self.lines: list[str] = []
        self.depth = 1

    def put(self, line: str) -> None:
        self.lines.append(line if line.startswith("#") else "    " * self.depth + line)

    def open(self, line: str) -> None:
        self.put(line + " {")
        self.depth += 1

    def close(self, count: int = 1) -> None:
        for _ in range(count):
            self.depth -= 1
            self.put("}")

    def text(self, comment: list[str]) -> str:
        parameters = []
        for argument in self.kernel.arguments.values():
            const = "" if argument.written else "const "
            parameters.append(f"{const}{POINTED[argument.dtype]}* __restrict {argument.name}")
        head = [f"// {line}" for line in comment] + [f'extern "C" void {self.kernel.name}({", ".join(parameters)}) {{']
        {"elements": self.elements, "rows": self.rows, "lanes": self.lanes, "split": self.split, "scan": self.scan}[self.shape.style]()
        return plain("\n".join([*head, *self.lines, "}", ""]))

    # -- loops --------------------------------------------------------------------------------------------------------------

    def loop(self, axis: int) -> None:
        name = self.variables[axis]
        self.open(f"for (long {name} = 0; {name} < {self.kernel.sizes[axis]}; ++{name})")

    def static(self) -> str:
        """Returns the OpenMP clauses that assign the iterations of a parallel loop to threads."""
        share = f"schedule(static, {self.shape.chunk})" if self.shape.chunk else "schedule(static)"
        return share + (f" num_threads({self.shape.workers})" if self.shape.workers else "")

    def simdlen(self) -> str:
        return f" simdlen({self.shape.simd})" if self.shape.simd else ""

    def outer_loops(self) -> int:
        """Opens the parallel loops over rows. Returns the number of open braces."""
        if self.shape.parallel and self.kernel.outer:
            collapse = f" collapse({len(self.kernel.outer)})" if len(self.kernel.outer) > 1 else ""
            self.put(f"#pragma omp parallel for{collapse} {self.static()}")
        for axis in self.kernel.outer:
            self.loop(axis)
        if not self.kernel.outer:
            self.block()
        return max(len(self.kernel.outer), 1)

    def block(self) -> None:
        self.open("")
        self.lines[-1] = self.lines[-1].replace(" {", "{")

    def elements(self) -> None:
        kernel = self.kernel
        step = self.plan.passes[0]
        if not kernel.inner:  # a scalar
            self.statements(step, {})
            return
        *rest, last = kernel.inner
        if self.shape.stream:
            self.streamed_elements(rest, last, step)
            return
        name = self.variables[last]
        if not rest:
            self.put(f"#pragma omp parallel for simd{self.simdlen()} {self.static()}" if self.shape.parallel else f"#pragma omp simd{self.simdlen()}")
            self.open(f"for (long {name} = 0; {name} < {kernel.sizes[last]}; ++{name})")
        else:
            if self.shape.parallel:
                self.put(f"#pragma omp parallel for{f' collapse({len(rest)})' if len(rest) > 1 else ''} {self.static()}")
            for axis in rest:
                self.loop(axis)
            self.put(f"#pragma omp simd{self.simdlen()}")
            self.loop(last)
        self.statements(step, {})
        self.close(len(rest) + 1)

    def streamed_elements(self, rest: list[int], last: int, step: Pass) -> None:
        """Computes lines of elements in the cache, then writes each finished line with stores that bypass the cache."""
        kernel, name = self.kernel, self.variables[last]
        size = kernel.sizes[last]
        block = min(size, self.shape.line)
        if self.shape.parallel:
            self.put(f"#pragma omp parallel for{f' collapse({len(rest) + 1})' if rest else ''} {self.static()}")
        for axis in rest:
            self.loop(axis)
        self.open(f"for (long start = 0; start < {size}; start += {block})")
        self.put(f"const long end = start + {block} < {size} ? start + {block} : {size};")
        self.put(f"alignas(64) float line[{block}];")
        self.put(f"#pragma omp simd{self.simdlen()}")
        self.open(f"for (long {name} = start; {name} < end; ++{name})")
        store = step.stores[0]
        self.statements(step, {}, {id(store): f"line[{name} - start]"})
        self.close()
        where = address(kernel, store.access, {**self.variables, last: "start"})
        self.put(f"stream_line({store.access.argument} + {where}, line, end - start);")
        self.close(len(rest) + 1)

    def rows(self) -> None:
        kernel = self.kernel
        opened = self.outer_loops()
        known: dict[str, str] = {}
        for name in self.plan.caches:
            self.put(f"alignas(64) static thread_local float {name}_row[{kernel.length}];" if kernel.length > STACK_FLOATS
                     else f"alignas(64) float {name}_row[{kernel.length}];")  # fmt: skip
        for step in self.plan.passes:
            self.row_values(step.rows, known)
            target: dict[int, str] = {}
            stream = self.shape.stream and step.stores and len(kernel.inner) == 1 and kernel.length <= STACK_FLOATS
            if stream:
                self.put(f"alignas(64) float line[{kernel.length}];")
                target = {id(step.stores[0]): f"line[{self.variables[kernel.inner[-1]]}]"}
            self.pass_over(step, known, target)
            if stream:
                access = step.stores[0].access
                where = address(kernel, access, {**self.variables, kernel.inner[-1]: "0"}).removesuffix(" + 0")
                self.put(f"stream_line({access.argument} + {where}, line, {kernel.length});")
        self.finish(known)
        self.close(opened)

    def split(self) -> None:
        known: dict[str, str] = {}
        for axis in self.kernel.outer:
            self.loop(axis)
        for step in self.plan.passes:
            self.row_values(step.rows, known)
            self.pass_over(step, known, {}, parallel=self.shape.parallel)
        self.finish(known)
        self.close(len(self.kernel.outer))

    def pass_over(self, step: Pass, known: dict[str, str], target: dict[int, str], parallel: bool = False) -> None:
        """Prints one loop nest over the elements of a row. The innermost loop runs in SIMD lanes and, for long rows, in blocks."""
        kernel = self.kernel
        *rest, last = kernel.inner
        size, name, block = kernel.sizes[last], self.variables[last], self.shape.block
        blocked = size > block and bool(step.reduces) or (parallel and not rest and size > block)
        nested = blocked or bool(rest)
        if any(op.attr == "argmax" for op in step.reduces):  # one element at a time, to find the first of equal elements
            self.ordered_pass(step, known, target)
            return
        for op in step.reduces:
            kind = "double" if op.attr == "sum" and nested else "float"
            self.put(f"{kind} {op.name} = {START[op.attr] if kind == 'float' else '0.0'};")
            if op.attr in ("amax", "amin"):
                self.put(f"int {op.name}_nan = 0;")
        if parallel:
            clauses = "".join(f" reduction({CLAUSE[op.attr]} : {op.name})" for op in step.reduces)
            clauses += "".join(f" reduction(| : {op.name}_nan)" for op in step.reduces if op.attr in ("amax", "amin"))
            if nested:
                self.put(f"#pragma omp parallel for{clauses} {self.static()}")
        for axis in rest:
            self.loop(axis)
        if blocked:
            self.open(f"for (long start = 0; start < {size}; start += {block})")
            self.put(f"const long end = start + {block} < {size} ? start + {block} : {size};")
        partial = {}
        for op in step.reduces if nested else []:
            if op.attr == "sum":
                partial[op.name] = f"{op.name}_part"
                self.put(f"float {op.name}_part = 0.0f;")
        names = {op.name: partial.get(op.name, op.name) for op in step.reduces}
        clauses = "".join(f" reduction({CLAUSE[op.attr]} : {names[op.name]})" for op in step.reduces)
        clauses += "".join(f" reduction(| : {op.name}_nan)" for op in step.reduces if op.attr in ("amax", "amin"))
        self.put(f"#pragma omp simd{self.simdlen()}{clauses}")
        begin, end = ("start", "end") if blocked else ("0", str(size))
        self.open(f"for (long {name} = {begin}; {name} < {end}; ++{name})")
        self.statements(step, known, target, names)
        self.close()
        for name in partial:
            self.put(f"{name} += {name}_part;")
        self.close(len(rest) + blocked)
        for op in step.reduces:
            if op.attr in ("amax", "amin"):
                self.put(f"if ({op.name}_nan) {op.name} = NAN;")
            known[op.name] = f"(float){op.name}" if op.attr == "sum" and nested else op.name

    def ordered_pass(self, step: Pass, known: dict[str, str], target: dict[int, str]) -> None:
        for op in step.reduces:
            self.begin(op, "double" if op.attr == "sum" else "float")
        for axis in self.kernel.inner:
            self.loop(axis)
        self.statements(step, known, target, ordered=True)
        self.close(len(self.kernel.inner))
        known.update({op.name: f"(float){op.name}" if op.attr == "sum" else op.name for op in step.reduces})

    def begin(self, op: Op, kind: str = "float") -> None:
        """Declares the variables of a reduction."""
        if op.attr == "argmax":
            self.put(f"float {op.name}_best = -INFINITY;")
            self.put(f"long long {op.name} = 0;")
        else:
            self.put(f"{kind} {op.name} = {START[op.attr] if kind == 'float' else '0.0'};")

    def lanes(self) -> None:
        """Assigns one row to each SIMD lane: the last row axis becomes the vector loop, which visits the elements of its rows one by one."""
        kernel = self.kernel
        *rest, last = kernel.outer
        if self.shape.parallel and rest:
            self.put(f"#pragma omp parallel for{f' collapse({len(rest)})' if len(rest) > 1 else ''} {self.static()}")
        for axis in rest:
            self.loop(axis)
        simd = f"simd{self.simdlen()}"
        self.put(f"#pragma omp parallel for {simd} {self.static()}" if self.shape.parallel and not rest else f"#pragma omp {simd}")
        self.loop(last)
        known: dict[str, str] = {}
        for step in self.plan.passes:
            self.row_values(step.rows, known)
            for op in step.reduces:
                self.begin(op)
            for axis in kernel.inner:
                self.loop(axis)
            if not kernel.inner:  # rows of one element: what a pass names is its own
                self.block()
            self.statements(step, known, {}, {op.name: op.name for op in step.reduces}, ordered=True)
            self.close(max(len(kernel.inner), 1))
            known.update({op.name: op.name for op in step.reduces})
        self.finish(known)
        self.close(len(rest) + 1)

    def scan(self) -> None:
        """Prints running sums. Several rows advance together to hide latency. The sums are in double precision, as in PyTorch."""
        kernel, lanes = self.kernel, self.shape.lanes
        step = self.plan.passes[0]
        rows = kernel.rows
        names = [self.variables[axis] for axis in kernel.outer]
        together = len(names) == 1 and lanes > 1
        if self.shape.parallel and names:
            self.put(f"#pragma omp parallel for {self.static()}" if together or len(names) == 1
                     else f"#pragma omp parallel for collapse({len(names)}) {self.static()}")  # fmt: skip
        if together:
            self.open(f"for (long first = 0; first < {rows}; first += {lanes})")
        else:
            for axis in kernel.outer:
                self.loop(axis)
        scans = [op for op in step.elements if op.kind == "scan"]
        for op in scans:
            self.put(f"double {op.name}[{lanes}] = {{}};" if together else f"double {op.name} = 0.0;")
        for axis in kernel.inner:
            self.loop(axis)
        if together:
            self.put(f"#pragma GCC unroll {lanes}")
            self.open(f"for (long lane = 0; lane < {lanes}; ++lane)")
            self.put(f"const long {names[0]} = first + lane;")
        self.scan_statements(step, "[lane]" if together else "")
        self.close(len(kernel.inner) + (2 if together else len(names)))

    def scan_statements(self, step: Pass, lane: str) -> None:
        known: dict[str, str] = {}
        printer = Expressions(self.kernel, CPP, self.variables, known)
        for op in self.row_ops_inline():
            known[op.name] = printer.expression(op) if op.kind == "const" else op.name
            if op.kind != "const":
                self.put(f"const {C_TYPES[op.dtype]} {op.name} = {printer.expression(op)};")
        for op in step.elements:
            if op.kind == "scan":
                self.put(f"{op.name}{lane} += {printer.text(op.args[0])};")
                known[op.name] = f"(float){op.name}{lane}"
        self.statements(step, known)

    def row_ops_inline(self) -> list[Op]:
        return [*self.plan.passes[0].rows, *self.plan.tail]

    # -- statements ---------------------------------------------------------------------------------------------------------

    def row_values(self, ops: list[Op], known: dict[str, str]) -> None:
        """Declares row values before a loop, one per line. Constants and values that are used only once are inlined in the expression that needs
        them."""
        for op in ops:
            printer = Expressions(self.kernel, CPP, self.variables, known)
            if op.kind == "const":
                known[op.name] = constant(op.attr, op.dtype)
                continue
            self.put(f"const {C_TYPES[op.dtype]} {op.name} = {printer.expression(op)};")
            known[op.name] = op.name

    def finish(self, known: dict[str, str]) -> None:
        self.row_values(self.plan.tail, known)
        for store in self.plan.row_stores:
            printer = Expressions(self.kernel, CPP, self.variables, known)
            self.put(f"{store.access.argument}[{address(self.kernel, store.access, self.variables)}] = {printer.text(store.op)};")

    def statements(self, step: Pass, known: dict[str, str], target: dict[int, str] | None = None,
                   names: dict[str, str] | None = None, ordered: bool = False) -> None:  # fmt: skip
        """Prints the body of the innermost loop. `ordered` means that a lane visits its elements one by one, so a maximum can propagate NaN."""
        at = self.plan.passes.index(step)
        local = dict(known)
        position = self.flat_inner() if self.plan.caches else ""
        for name in step.cached:
            local[name] = f"{name}_row[{position}]"
        printer = Expressions(self.kernel, CPP, self.variables, local)
        for op in [*step.rows, *step.elements] if self.shape.style == "elements" else step.elements:
            if op.name in local or op.kind == "scan":
                continue
            uses = self.plan.uses(at, op.name)
            text = printer.expression(op)
            if op.kind == "const":
                local[op.name] = text
            elif uses > 1 or width(text) > 72 or self.plan.named(at, op.name):
                self.put(f"const {C_TYPES[op.dtype]} {op.name} = {text};")
                local[op.name] = op.name
        for name in step.keeps:
            self.put(f"{name}_row[{position}] = {printer.text(name)};")
        for op in step.reduces:
            if op.attr == "argmax":
                value, best = printer.inner(op.args[0]), f"{op.name}_best"
                above = f"{value} > {best} || ({value} != {value} && {best} == {best})"
                self.put(f"if ({above}) {best} = {value}, {op.name} = {printer.text(op.args[1])};")
                continue
            self.put(self.accumulate(op, (names or {}).get(op.name, op.name), printer.text(op.args[0]), ordered))
            if op.attr in ("amax", "amin") and not ordered:
                value = printer.inner(op.args[0])
                self.put(f"{op.name}_nan |= {value} != {value};")
        for store in step.stores:
            self.put(f"{self.destination(store, target)} = {printer.text(store.op)};")

    def destination(self, store: Store, target: dict[int, str] | None) -> str:
        if target and id(store) in target:
            return target[id(store)]
        return f"{store.access.argument}[{address(self.kernel, store.access, self.variables)}]"

    def accumulate(self, op: Op, name: str, value: str, ordered: bool) -> str:
        if op.attr == "sum":
            return f"{name} += {value};"
        sign = ">" if op.attr in ("max", "amax") else "<"
        wrapped = value if value.isidentifier() or value.endswith("]") else f"({value})"
        nan = f" || {wrapped} != {wrapped}" if ordered and op.attr in ("amax", "amin") else ""
        return f"{name} = {wrapped} {sign} {name}{nan} ? {wrapped} : {name};"

    def flat_inner(self) -> str:
        """Position of the current element in its row, counted over all inner axes."""
        terms = []
        for at, axis in enumerate(self.kernel.inner):
            step = product(self.kernel.sizes[a] for a in self.kernel.inner[at + 1 :])
            terms.append(self.variables[axis] if step == 1 else f"{self.variables[axis]} * {step}")
        return " + ".join(terms)
