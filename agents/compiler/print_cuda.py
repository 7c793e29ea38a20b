"""Kernels as CUDA C++ behind a plain C ABI: a launcher takes device pointers and a stream and returns the launch's error."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agents.compiler.families import NAME, Printed
from agents.compiler.ir import Access, Kernel, Op, Store, product
from agents.compiler.kernels.expressions import C_TYPES, CUDA, POINTED, Expressions, address, constant, functions_used
from agents.compiler.kernels.math_cuda import sources
from agents.compiler.kernels.schedule import Pass, Schedule, schedule
from agents.compiler.kernels.shape import Shape

HOW = {"sum": "Sum", "max": "Max", "min": "Min", "amax": "Max", "amin": "Min"}
START = {"sum": "0.0f", "max": "-INFINITY", "min": "INFINITY", "amax": "-INFINITY", "amin": "INFINITY"}
REGISTERS = 32  # values of a row that one thread keeps


def print_source(kernels: list[tuple[Kernel, Shape, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]] = {}) -> str:
    """The translation unit: the functions that are used, then each kernel under its comment (lines), with its launcher. `printed`: kernels of
    families by name, each with what is printed of the IR in it."""
    used = set().union(*(functions_used(kernel) for kernel in [k for k, _, _ in kernels] + [k for _, inside, _ in printed.values() for k in inside]))
    reduces = any(kernel.reduces and not kernel.scans and shape.style != "lanes" for kernel, shape, _ in kernels)
    includes = dict.fromkeys(["cmath", *(name for found, _, _ in printed.values() for name in found.includes)])
    parts = ["\n".join(f"#include <{name}>" for name in includes) + "\n", *sources(used, reduces, any(kernel.scans for kernel, _, _ in kernels))]
    parts += [CudaKernel(kernel, shape).text(comment) for kernel, shape, comment in kernels]
    return "\n".join([*parts, *print_families(printed)])


def print_families(printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]]) -> list[str]:
    """What several kernels of families share, then each of them under its comment; the same for C++."""
    parts = list(dict.fromkeys(text for found, _, _ in printed.values() for text in found.shared))
    for name, (found, _, comment) in printed.items():
        parts.append("\n".join([*(f"// {line}" for line in comment), found.source.replace(NAME, name)]))
    return parts


class CudaKernel:
    def __init__(self, kernel: Kernel, shape: Shape):
        self.kernel, self.shape = kernel, shape
        self.team = 32 if shape.warp_rows else shape.threads
        self.width = vector_width(kernel) if shape.vector == 4 and shape.style in ("elements", "rows", "split") else 1
        per_thread = -(-kernel.length // self.team)
        self.resident = shape.style == "rows" and shape.cache and per_thread <= REGISTERS
        self.plan: Schedule = schedule(kernel, self.resident)
        self.items = max(1, -(-kernel.length // (self.team * self.width)))
        outer = ["row"] if len(kernel.outer) == 1 else [f"row{n}" for n in range(len(kernel.outer))]
        inner = ["i", "j", "k", "l", "m", "n"][: len(kernel.inner)][::-1]
        self.variables = dict(zip(kernel.outer, outer, strict=True)) | dict(zip(kernel.inner, inner, strict=True))
        self.lines: list[str] = []
        self.depth = 1

    # -- writing ------------------------------------------------------------------------------------------------------------

    def put(self, line: str) -> None:
        self.lines.append(line if line.startswith("#") else "    " * self.depth + line)

    def open(self, line: str) -> None:
        self.put(line + " {")
        self.depth += 1

    def close(self, count: int = 1) -> None:
        for _ in range(count):
            self.depth -= 1
            self.put("}")

    def parameters(self) -> list[str]:
        return [
            f"{'' if argument.written else 'const '}{POINTED[argument.dtype]}* __restrict__ {argument.name}"
            for argument in self.kernel.arguments.values()
        ]

    def text(self, comment: list[str]) -> str:
        head = [f"// {line}" for line in comment]
        if self.shape.style == "split":
            return "\n".join([*head, *self.split(), ""])
        {"elements": self.elements, "rows": self.rows, "lanes": self.lanes, "scan": self.scan}[self.shape.style]()
        grid = {
            "elements": self.grid_of(-(-product(self.kernel.sizes) // (self.width * self.shape.work))),
            "rows": -(-self.kernel.rows // (self.shape.threads // self.team)),
            "lanes": -(-self.kernel.rows // self.shape.threads),
            "scan": self.kernel.rows,
        }[self.shape.style]
        body = self.function(f"{self.kernel.name}_kernel", self.parameters())
        return "\n".join([*head, *body, *self.launcher([(f"{self.kernel.name}_kernel", grid)]), ""])

    def grid_of(self, work: int) -> int:
        return max(1, min(-(-work // self.shape.threads), 65535))

    def function(self, name: str, parameters: list[str]) -> list[str]:
        bounds = f"{self.shape.threads}, {self.shape.resident}" if self.shape.resident else f"{self.shape.threads}"
        lines = [f"__global__ void __launch_bounds__({bounds}) {name}({', '.join(parameters)}) {{", *self.lines, "}"]
        self.lines, self.depth = [], 1
        return lines

    def launcher(self, launches: list[tuple[str, int]], scratch: bool = False) -> list[str]:
        parameters = [*self.parameters(), *(["float* __restrict__ scratch"] if scratch else []), "void* stream"]
        names = ", ".join([*self.kernel.arguments, *(["scratch"] if scratch else [])])
        lines = [f'extern "C" int {self.kernel.name}({", ".join(parameters)}) {{']
        lines += [f"    {name}<<<{grid}, {self.shape.threads}, 0, (cudaStream_t)stream>>>({names});" for name, grid in launches]
        return [*lines, "    return (int)cudaGetLastError();", "}"]

    # -- index arithmetic ---------------------------------------------------------------------------------------------------

    def unravel(self, flat: str, axes: list[int], kind: str) -> None:
        """Declares the variables of `axes` from a flat index over them."""
        if len(axes) == 1 and self.variables[axes[0]] == flat:
            return
        left = product(self.kernel.sizes[axis] for axis in axes)
        for at, axis in enumerate(axes):
            size = self.kernel.sizes[axis]
            left //= size
            text = flat if left == 1 else f"{flat} / {left}"
            text = text if at == 0 else f"({text}) % {size}" if "/" in text else f"{text} % {size}"
            self.put(f"const {kind} {self.variables[axis]} = {text};")

    def open_rows(self) -> None:
        """Declares the row (or its axes) of this team of threads."""
        kernel = self.kernel
        if self.shape.warp_rows:
            per_block = self.shape.threads // 32
            self.put(f"const long row = (long)blockIdx.x * {per_block} + threadIdx.x / 32;")
            if kernel.rows % per_block:
                self.put(f"if (row >= {kernel.rows}) return;")
            self.put("const int thread = threadIdx.x % 32;")
        else:
            if kernel.outer:
                self.put("const long row = blockIdx.x;")
            self.put("const int thread = threadIdx.x;")
        if len(kernel.outer) > 1:
            self.unravel("row", kernel.outer, "long")

    # -- styles -------------------------------------------------------------------------------------------------------------

    def elements(self) -> None:
        kernel, step = self.kernel, self.plan.passes[0]
        if not kernel.inner:
            self.open("if (threadIdx.x == 0)")
            self.statements(step, {}, {})
            self.close()
            return
        work = product(kernel.sizes) // self.width
        if self.shape.work > 1:
            self.put(f"#pragma unroll {self.shape.work}")
        self.open(f"for (long at = (long)blockIdx.x * {self.shape.threads} + threadIdx.x; at < {work}; at += (long)gridDim.x * {self.shape.threads})")
        self.vector_body(step, {}, f"at * {self.width}" if self.width > 1 else "at", "long")
        self.close()

    def rows(self) -> None:
        kernel = self.kernel
        self.open_rows()
        for name in self.row_arrays():
            self.put(f"{'alignas(16) ' if self.width > 1 else ''}float {name}_row[{self.items}]{f'[{self.width}]' if self.width > 1 else ''};")
        known: dict[str, str] = {}
        for step in self.plan.passes:
            self.row_values(step.rows, known)
            self.declare(step)
            self.items_loop(step, known, self.team, kernel.length)
            for op in step.reduces:
                self.combine(op, known)
        self.finish(known, "thread == 0")

    def split(self) -> list[str]:
        """Each pass is a kernel: blocks sum up their chunk of a row into `scratch`, the next pass sums up the chunks."""
        kernel, lines, launches, chunks = self.kernel, [], [], self.shape.chunks
        parameters = [*self.parameters(), "float* __restrict__ scratch"]
        slots: dict[str, int] = {}
        finished: list[Op] = []
        last_full = max((at for at, step in enumerate(self.plan.passes) if step.stores), default=-1)
        total = len(self.plan.passes) + (1 if self.plan.row_stores and self.plan.passes[-1].reduces else 0)
        for at in range(total):
            step = self.plan.passes[at] if at < len(self.plan.passes) else Pass()
            self.put(f"const long row = blockIdx.x / {chunks};")
            self.put(f"const int chunk = blockIdx.x % {chunks}, thread = threadIdx.x;")
            if len(kernel.outer) > 1:
                self.unravel("row", kernel.outer, "long")
            known: dict[str, str] = {}
            for op in finished:
                self.put(
                    f"float {op.name} = thread < {chunks} ? scratch[({slots[op.name]} * {kernel.rows} + row) * {chunks} + thread] : {START[op.attr]};"
                )
                self.put(f"{op.name} = over_block<{HOW[op.attr]}, {self.shape.threads}>({op.name}, {START[op.attr]});")
                known[op.name] = op.name
            if step.elements or step.stores or step.reduces:
                for earlier in self.plan.passes[: at + 1]:
                    self.row_values(earlier.rows, known)
                self.declare(step)
                self.items_loop(step, known, self.shape.threads * chunks, kernel.length, f"(chunk * {self.shape.threads} + thread)")
            for op in step.reduces:
                slots[op.name] = len(slots)
                self.combine(op, known)
                self.put(f"if (thread == 0) scratch[({slots[op.name]} * {kernel.rows} + row) * {chunks} + chunk] = {known[op.name]};")
            finished += step.reduces
            if at == total - 1:
                if not step.elements:
                    for earlier in self.plan.passes:
                        self.row_values(earlier.rows, known)
                self.finish(known, "chunk == 0 && thread == 0")
            name = f"{kernel.name}_pass{at + 1}"
            launches.append((name, kernel.rows * chunks))
            lines += [*self.function(name, parameters), ""]
        assert last_full < total
        return [*lines, *self.launcher(launches, scratch=True)]

    def scratch_floats(self) -> int:
        """Length of the scratch tensor that the launcher takes; 0 where it takes none."""
        return sum(len(step.reduces) for step in self.plan.passes) * self.kernel.rows * self.shape.chunks if self.shape.style == "split" else 0

    def lanes(self) -> None:
        kernel = self.kernel
        self.put(f"const long row = (long)blockIdx.x * {self.shape.threads} + threadIdx.x;")
        self.put(f"if (row >= {kernel.rows}) return;")
        if len(kernel.outer) > 1:
            self.unravel("row", kernel.outer, "long")
        known: dict[str, str] = {}
        for step in self.plan.passes:
            self.row_values(step.rows, known)
            for op in step.reduces:
                self.put(f"float {op.name} = {START[op.attr]};")
            if step.elements or step.stores:
                for axis in kernel.inner:
                    name = self.variables[axis]
                    if self.shape.unroll and axis == kernel.inner[-1]:
                        self.put(f"#pragma unroll {self.shape.unroll}")
                    self.open(f"for (long {name} = 0; {name} < {kernel.sizes[axis]}; ++{name})")
                self.statements(step, known, {})
                self.close(len(kernel.inner))
            known.update({op.name: op.name for op in step.reduces})
        self.finish(known, "")

    def scan(self) -> None:
        """Tiles of a few elements a thread; what came before a thread is summed over the block, what came before the tile is carried."""
        kernel, step = self.kernel, self.plan.passes[0]
        self.open_rows()
        known: dict[str, str] = {}
        self.row_values([*step.rows, *self.plan.tail], known)
        scans = [op for op in step.elements if op.kind == "scan"]
        each, size = self.shape.tile, kernel.length
        tile = self.shape.threads * each
        for op in scans:
            self.put(f"double {op.name}_carry = 0.0;")
        self.open(f"for (long tile = 0; tile < {size}; tile += {tile})")
        for op in scans:
            self.put(f"double {op.name}_part[{each}], {op.name}_total, {op.name}_sum = 0.0;")
        self.put("#pragma unroll")
        self.open(f"for (int lane = 0; lane < {each}; ++lane)")
        self.put(f"const long at = tile + thread * {each} + lane;")
        guard = size % tile != 0
        if guard:
            self.open(f"if (at < {size})")
        self.unravel("at", kernel.inner, "long")
        printer = Expressions(kernel, CUDA, self.variables, dict(known))
        for op in scans:
            self.put(f"{op.name}_sum += {printer.text(op.args[0])};")
        if guard:
            self.close()
        for op in scans:
            self.put(f"{op.name}_part[lane] = {op.name}_sum;")
        self.close()
        for op in scans:
            self.put(f"const double {op.name}_before = {op.name}_carry + before_in_block<{self.shape.threads}>({op.name}_sum, {op.name}_total);")
            self.put(f"{op.name}_carry += {op.name}_total;")
        self.put("#pragma unroll")
        self.open(f"for (int lane = 0; lane < {each}; ++lane)")
        self.put(f"const long at = tile + thread * {each} + lane;")
        if guard:
            self.put(f"if (at >= {size}) break;")
        self.unravel("at", kernel.inner, "long")
        local = dict(known) | {op.name: f"(float)({op.name}_before + {op.name}_part[lane])" for op in scans}
        self.statements(step, local, {})
        self.close(2)

    # -- loops over a row ---------------------------------------------------------------------------------------------------

    def row_arrays(self) -> list[str]:
        """Operations whose values a thread keeps in registers: what is loaded in one pass and read in another, and dear results."""
        if not self.resident:
            return []
        counts: dict[str, int] = {}
        for step in self.plan.passes:
            for op in step.elements:
                if op.kind == "load" and op.level == "full" and op.dtype == "float32":
                    counts[op.name] = counts.get(op.name, 0) + 1
        return [name for name, passes in counts.items() if passes > 1] + self.plan.caches

    def declare(self, step: Pass) -> None:
        for op in step.reduces:
            wide = op.attr == "sum" and not self.resident
            self.put(f"{'double' if wide else 'float'} {op.name}_part = {'0.0' if wide else START[op.attr]};")

    def combine(self, op: Op, known: dict[str, str]) -> None:
        if self.shape.warp_rows:
            self.put(f"const float {op.name} = over_warp<{HOW[op.attr]}>({op.name}_part);")
        else:
            wide = op.attr == "sum" and not self.resident
            start = "0.0" if wide else START[op.attr]
            cast = "(float)" if wide else ""
            self.put(f"const float {op.name} = {cast}over_block<{HOW[op.attr]}, {self.shape.threads}>({op.name}_part, {start});")
        known[op.name] = op.name

    def items_loop(self, step: Pass, known: dict[str, str], team: int, length: int, thread: str = "thread") -> None:
        """Each thread of the team takes every `team`-th group of `width` elements."""
        if not (step.elements or step.stores or step.reduces):
            return
        stride = team * self.width
        kind = "int" if length < 2**31 - stride else "long"
        first = thread if self.width == 1 else f"{thread} * {self.width}"
        if self.resident:
            self.put("#pragma unroll")
            self.open(f"for (int item = 0; item < {self.items}; ++item)")
            begin = len(self.lines)
            self.put(f"const {kind} at = {first} + item * {stride};")
            guarded = length % stride != 0
            if guarded:
                self.open(f"if (at < {length})")
            self.vector_body(step, known, "at", kind)
            self.close(1 + guarded)
            self.drop_unused(begin)
        else:
            if self.shape.unroll:
                self.put(f"#pragma unroll {self.shape.unroll}")
            self.open(f"for ({kind} at = {first}; at < {length}; at += {stride})")
            self.vector_body(step, known, "at", kind)
            self.close()

    def vector_body(self, step: Pass, known: dict[str, str], at: str, kind: str) -> None:
        """Loads groups of four floats at once, computes them one by one, stores them at once."""
        kernel = self.kernel
        axes = kernel.inner
        local = dict(known)
        arrays = self.row_arrays() if self.shape.style == "rows" else []
        item = "[item]" if self.resident else ""
        lane = "[lane]" if self.width > 1 else ""
        for name in step.cached:
            local[name] = f"{name}_row{item}{lane}"
        first_pass = {name: next(n for n, s in enumerate(self.plan.passes) if any(op.name == name for op in s.elements)) for name in arrays}
        here = self.plan.passes.index(step)
        target: dict[int, str] = {}
        first = at
        if self.width > 1 and not at.isidentifier():
            first = "start"
            self.put(f"const {kind} start = {at};")
        begin = len(self.lines)
        if self.width > 1:
            self.unravel_lane(first, axes, kind, "_0")
        for op in step.elements:
            if op.kind != "load" or op.level != "full":
                continue
            if op.name in arrays:
                place = f"{op.name}_row{item}"
                local[op.name] = place + lane
                if first_pass[op.name] == here and self.width > 1:
                    self.put(f"*(float4*){place} = *(const float4*)({op.access.argument} + {self.vector_address(op.access, first)});")
            elif self.width > 1 and vector_access(kernel, op.access) and op.dtype == "float32":
                self.put(f"alignas(16) float {op.name}_four[4];")
                self.put(f"*(float4*){op.name}_four = *(const float4*)({op.access.argument} + {self.vector_address(op.access, first)});")
                local[op.name] = f"{op.name}_four[lane]"
        vector_stores = [s for s in step.stores if self.width > 1 and vector_access(kernel, s.access) and self.stored_type(s) == "float"]
        for store in vector_stores:
            name = f"{store.access.argument}_to"
            self.put(f"alignas(16) float {name}[4];")
            target[id(store)] = f"{name}[lane]"
        if self.width > 1:
            self.put("#pragma unroll")
            self.open("for (int lane = 0; lane < 4; ++lane)")
            self.unravel_lane(first, axes, kind, "", lane=True)
        elif len(axes) > 1 or self.variables[axes[-1]] != at:
            self.unravel(at, axes, kind)
        for name in arrays:
            if self.width == 1 and first_pass[name] == here and name not in self.plan.caches:
                op = kernel.ops[name]
                self.put(f"{name}_row[item] = {op.access.argument}[{address(kernel, op.access, self.variables)}];")
        self.statements(step, local, target)
        if self.width > 1:
            self.close()
        for store in vector_stores:
            self.put(
                f"*(float4*)({store.access.argument} + {self.vector_address(store.access, first)}) = *(const float4*){store.access.argument}_to;"
            )
        self.drop_unused(begin)

    def drop_unused(self, begin: int) -> None:
        """Takes out index variables declared since line `begin` that nothing reads."""
        for at in range(len(self.lines) - 1, begin - 1, -1):
            declared = re.match(r"\s*const (?:int|long) (\w+) = ", self.lines[at])
            name = declared[1] if declared else ""
            if name.removesuffix("_0") in {*self.variables.values(), "at"} and not any(
                re.search(rf"\b{name}\b", line) for line in self.lines[at + 1 :]
            ):
                del self.lines[at]

    def unravel_lane(self, flat: str, axes: list[int], kind: str, suffix: str, lane: bool = False) -> None:
        """Axis variables of the first of four elements (with a suffix), or of the element of this lane."""
        left = product(self.kernel.sizes[axis] for axis in axes)
        for at, axis in enumerate(axes):
            size = self.kernel.sizes[axis]
            left //= size
            name = self.variables[axis]
            if lane:
                base = flat if len(axes) == 1 else f"{name}_0"
                text = f"{base} + lane" if axis == axes[-1] else base
            elif len(axes) == 1:
                return
            else:
                text = flat if left == 1 else f"{flat} / {left}"
                text = text if at == 0 else f"({text}) % {size}" if "/" in text else f"{text} % {size}"
            self.put(f"const {kind} {name}{suffix} = {text};")

    def vector_address(self, access: Access, first: str) -> str:
        inner = self.kernel.inner
        names = {axis: (first if len(inner) == 1 else f"{name}_0") if axis in inner else name for axis, name in self.variables.items()}
        return address(self.kernel, access, names)

    def stored_type(self, store: Store) -> str:
        return C_TYPES[self.kernel.arguments[store.access.argument].dtype]

    # -- statements ---------------------------------------------------------------------------------------------------------

    def row_values(self, ops: list[Op], known: dict[str, str]) -> None:
        for op in ops:
            if op.name in known or any(a not in known and self.kernel.ops[a].kind == "reduce" for a in op.args):
                continue
            printer = Expressions(self.kernel, CUDA, self.variables, known)
            if op.kind == "const":
                known[op.name] = constant(op.attr, op.dtype)
                continue
            self.put(f"const {C_TYPES[op.dtype]} {op.name} = {printer.expression(op)};")
            known[op.name] = op.name

    def finish(self, known: dict[str, str], guard: str) -> None:
        if not self.plan.row_stores:
            return
        if guard:
            self.open(f"if ({guard})")
        self.row_values(self.plan.tail, known)
        for store in self.plan.row_stores:
            printer = Expressions(self.kernel, CUDA, self.variables, known)
            self.put(f"{store.access.argument}[{address(self.kernel, store.access, self.variables)}] = {printer.text(store.op)};")
        if guard:
            self.close()

    def statements(self, step: Pass, known: dict[str, str], target: dict[int, str]) -> None:
        at = self.plan.passes.index(step)
        local = dict(known)
        printer = Expressions(self.kernel, CUDA, self.variables, local)
        rows = step.rows if self.shape.style == "elements" else []
        for op in [*rows, *step.elements]:
            if op.name in local or op.kind == "scan":
                continue
            text = printer.expression(op)
            if op.kind == "const":
                local[op.name] = text
            elif self.plan.uses(at, op.name) > 1 or len(text) > 72 or self.plan.named(at, op.name):
                self.put(f"const {C_TYPES[op.dtype]} {op.name} = {text};")
                local[op.name] = op.name
        lane = "[item][lane]" if self.width > 1 else "[item]"
        for name in step.keeps:
            self.put(f"{name}_row{lane} = {printer.text(name)};")
        for op in step.reduces:
            name = op.name if self.shape.style == "lanes" else f"{op.name}_part"
            value = printer.text(op.args[0])
            if op.attr == "sum":
                self.put(f"{name} += {value};")
            else:
                sign = ">" if op.attr in ("max", "amax") else "<"
                simple = value if value.isidentifier() or value.endswith("]") else f"({value})"
                nan = f" || {simple} != {simple}" if op.attr in ("amax", "amin") else ""
                self.put(f"{name} = {simple} {sign} {name}{nan} ? {simple} : {name};")
        for store in step.stores:
            place = target.get(id(store)) or f"{store.access.argument}[{address(self.kernel, store.access, self.variables)}]"
            self.put(f"{place} = {printer.text(store.op)};")


def vector_access(kernel: Kernel, access: Access) -> bool:
    """Four neighbouring elements of the last axis lie side by side at an aligned address."""
    last = kernel.inner[-1]
    return access.strides[last] == 1 and access.offset % 4 == 0 and all(s % 4 == 0 for axis, s in enumerate(access.strides) if axis != last)


def vector_width(kernel: Kernel) -> int:
    """4 where every dense single-precision access allows it, else 1."""
    if not kernel.inner or kernel.sizes[kernel.inner[-1]] % 4:
        return 1
    last = kernel.inner[-1]
    floats = [op.access for op in kernel.ops.values() if op.kind == "load" and op.dtype == "float32"] + [
        store.access for store in kernel.stores if store.level == "full" and kernel.arguments[store.access.argument].dtype == "float32"
    ]
    dense = [access for access in floats if access.strides[last]]
    aligned = all(vector_access(kernel, access) and kernel.arguments[access.argument].shift % 4 == 0 for access in dense)
    return 4 if dense and aligned else 1
