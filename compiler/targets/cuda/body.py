"""Prints the body of a CUDA kernel: index arithmetic, a thread's loops over its elements, and the statements in these loops."""

from __future__ import annotations

import re

from compiler.graph.ir import HALVES, INNER, SIZES, Access, Kernel, Op, product
from compiler.kernel.expressions import C_TYPES, Expressions, address, constant, widened
from compiler.kernel.functions import CUDA
from compiler.kernel.schedule import Pass, Schedule, schedule
from compiler.kernel.shape import Shape
from compiler.kernel.text import below, beyond, times, width
from compiler.kernel.vectors import COUNTS, LOADED, copy_vector, gathered_vector, index_type, store_vector, summed_vector, vector_access, vector_width

HOW = {"sum": "Sum", "max": "Max", "min": "Min", "amax": "Max", "amin": "Min"}
START = {"sum": "0.0f", "max": "-INFINITY", "min": "INFINITY", "amax": "-INFINITY", "amin": "INFINITY"}
REGISTERS = 32  # maximum number of row values that one thread keeps
BATCH = 4  # loads in flight per thread in a loop over row elements that it overwrites


class Body:
    """Collects the lines of one kernel at a time. `team` threads share a row, and each processes `width` neighbouring elements at a time."""

    def __init__(self, kernel: Kernel, shape: Shape):
        self.kernel, self.shape = kernel, shape
        self.team = 32 if shape.warp_rows else shape.threads * max(shape.cluster, 1)
        self.shared = shape.style == "rows" and shape.cluster > 0  # whether shared memory holds the row data that several passes read
        self.width = vector_width(kernel, shape.vector) if shape.style in ("elements", "rows", "split") else 1
        if shape.warp_rows and kernel.length < 32 * self.width and any(op.kind == "gather" and op.level == "full" for op in kernel.ops.values()):
            self.width = 1  # every thread of the warp must have an element
        read = {kernel.arguments[op.access.argument].dtype for op in kernel.ops.values() if op.kind == "load" and op.level == "full"}
        self.narrow = bool(read & HALVES) and "float32" not in read  # whether the elements of a row have 16 bits
        per_thread = -(-kernel.length // self.team)
        self.resident = shape.style == "rows" and not self.shared and shape.cache and per_thread <= REGISTERS
        self.plan: Schedule = schedule(kernel, self.resident)
        self.items = max(1, -(-kernel.length // (self.team * self.width)))
        outer = ["row"] if len(kernel.outer) == 1 else [f"row{n}" for n in range(len(kernel.outer))]
        inner = INNER[: len(kernel.inner)][::-1]
        self.variables = dict(zip(kernel.outer, outer, strict=True)) | dict(zip(kernel.inner, inner, strict=True))
        self.lines: list[str] = []
        self.depth = 1

    def take(self) -> list[str]:
        """Returns the lines collected so far and starts the next kernel."""
        lines, self.lines, self.depth = self.lines, [], 1
        return lines

    def put(self, line: str) -> None:
        self.lines.append(line if line.startswith("#") else "    " * self.depth + line)

    def put_all(self, lines: list[str]) -> None:
        for line in lines:
            self.put(line)

    def open(self, line: str) -> None:
        self.put(line + " {")
        self.depth += 1

    def close(self, count: int = 1) -> None:
        for _ in range(count):
            self.depth -= 1
            self.put("}")

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
        """Declares the row of this team of threads, or the axes of the row."""
        kernel = self.kernel
        if self.shape.warp_rows:
            per_block = self.shape.threads // 32
            self.put(f"const long row = {times('(long)blockIdx.x', per_block)} + threadIdx.x / 32;")
            if kernel.rows % per_block:
                self.put(f"if ({beyond('row', kernel.rows)}) return;")
            self.put("const int thread = threadIdx.x % 32;")
        else:
            if kernel.outer:
                self.put("const long row = blockIdx.x;")
            self.put("const int thread = threadIdx.x;")
        if len(kernel.outer) > 1:
            self.unravel("row", kernel.outer, "long")

    # -- loops over a row ---------------------------------------------------------------------------------------------------

    def row_arrays(self) -> list[str]:
        """Returns the operations whose values a thread keeps in registers or shared memory: loads that several passes read, and expensive results."""
        if not self.resident and not self.shared:
            return []
        counts: dict[str, int] = {}
        for step in self.plan.passes:
            for op in step.elements:
                if op.kind == "load" and op.level == "full" and self.takes_vector(op.access):
                    counts[op.name] = counts.get(op.name, 0) + 1
        return [name for name, passes in counts.items() if passes > 1] + self.plan.caches

    def declare(self, step: Pass) -> None:
        for op in step.reduces:
            if op.attr == "argmax":
                self.put(f"float {op.name}_best_part = -INFINITY;")
                self.put(f"long long {op.name}_part = 0;")
                continue
            wide = self.sums_wide(op)
            self.put(f"{'double' if wide else 'float'} {op.name}_part = {'0.0' if wide else START[op.attr]};")

    def combine(self, op: Op, known: dict[str, str], keep: bool = False) -> None:
        """Declares the result over all threads of the row or block. With `keep`, it keeps the precision of the sums."""
        if op.attr == "argmax":
            rank = f"ranked({op.name}_best_part, {op.name}_part)"
            over = f"over_warp<Max>({rank})" if self.shape.warp_rows else f"over_block<Max, {self.shape.threads}>({rank}, ranked(-INFINITY, 0))"
            self.put(f"const long long {op.name} = place_of({over});")
        elif self.shape.warp_rows:
            self.put(f"const float {op.name} = over_warp<{HOW[op.attr]}>({op.name}_part);")
        else:
            wide = self.sums_wide(op)
            start = "0.0" if wide else START[op.attr]
            kind = "double" if wide and (keep or op.dtype == "float64") else "float"
            found = f"over_block<{HOW[op.attr]}, {self.shape.threads}>({op.name}_part, {start})"
            if self.shape.cluster > 1:
                found = f"over_cluster<{HOW[op.attr]}, {self.shape.cluster}>({found})"
            self.put(f"const {kind} {op.name} = {'(float)' if wide and kind == 'float' else ''}{found};")
        known[op.name] = op.name

    def sums_wide(self, op: Op) -> bool:
        """True if a thread accumulates in double precision, as it does for long fp32 rows but not for rows stored in 16 bits."""
        return op.dtype == "float64" or op.attr == "sum" and not (self.resident or self.shared or self.narrow)

    def items_loop(self, step: Pass, known: dict[str, str], team: int, length: int, thread: str = "thread") -> None:
        """Prints a loop in which each thread of the team takes every `team`-th group of `width` elements."""
        if not (step.elements or step.stores or step.reduces):
            return
        stride = team * self.width
        kind = index_type(self.kernel, self.kernel.inner, length + stride)
        first = thread if self.width == 1 else times(thread, self.width)
        if self.resident or self.shared:
            self.put("#pragma unroll" if self.resident else f"#pragma unroll {self.shape.unroll or 4}")
            self.open(f"for (int item = 0; item < {self.items}; ++item)")
            begin = len(self.lines)
            self.put(f"const {kind} at = {first} + {times('item', stride)};")
            guarded = length % stride != 0
            if guarded:
                self.open(f"if ({below('at', length)})")
            if self.shared:
                self.put(f"const int slot = {times('item', self.shape.threads)} + thread;")
            self.vector_body(step, known, "at", kind)
            self.close(1 + guarded)
            self.drop_unused(begin)
        elif self.width == 1 and (again := self.overwritten(step)):
            self.batches(step, known, again, first, length, stride)
        else:
            if self.shape.unroll:
                self.put(f"#pragma unroll {self.shape.unroll}")
            self.open(f"for ({kind} at = {first}; at < {length}; at += {stride})")
            self.vector_body(step, known, "at", kind)
            self.close()

    def overwritten(self, step: Pass) -> list[Op]:
        """Returns the loads from tensors to which the same pass stores."""
        stored = {store.access.argument for store in step.stores}
        return [op for op in step.elements if op.kind == "load" and op.level == "full" and op.access.argument in stored]

    def batches(self, step: Pass, known: dict[str, str], again: list[Op], first: str, length: int, stride: int) -> None:
        """Prints a thread's loop over single elements of a row that it overwrites. The compiler cannot prove that no store aliases a later load, so
        it would keep only one load in flight. The printed loop therefore loads several elements before it stores the first of them."""
        kernel, count = self.kernel, self.shape.unroll or BATCH
        kind = index_type(kernel, kernel.inner, length + count * stride)
        self.open(f"for ({kind} start = {first}; start < {length}; start += {count * stride})")
        for op in again:
            self.put(f"{self.kept_type(op.name)} {op.name}_ahead[{count}];")
        for storing in (False, True):
            self.put("#pragma unroll")
            self.open(f"for (int item = 0; item < {count}; ++item)")
            begin = len(self.lines)
            self.put(f"const {kind} at = start + {times('item', stride)};")
            self.open(f"if ({below('at', length)})")
            if len(kernel.inner) > 1 or self.variables[kernel.inner[-1]] != "at":
                self.unravel("at", kernel.inner, kind)
            if storing:
                self.statements(step, {**known, **{op.name: self.widened(op.access, f"{op.name}_ahead[item]") for op in again}}, {})
            else:
                for op in again:
                    self.put(f"{op.name}_ahead[item] = {op.access.argument}[{address(kernel, op.access, self.variables)}];")
            self.close(2)
            self.drop_unused(begin)
        self.close()

    def vector_body(self, step: Pass, known: dict[str, str], at: str, kind: str) -> None:
        """Loads each group of neighbouring elements with one instruction, computes its elements one by one, and stores the group with one
        instruction."""
        kernel = self.kernel
        axes = kernel.inner
        local = dict(known)
        arrays = self.row_arrays() if self.shape.style == "rows" else []
        item = "[item]" if self.resident else "[slot]"
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
                local[op.name] = self.widened(op.access, place + lane)
                if first_pass[op.name] == here and self.width > 1:
                    self.load(op.access, place, first)
            elif self.width > 1 and self.takes_vector(op.access):
                name = f"{op.name}_{COUNTS[self.width]}"
                self.put(f"alignas(16) {self.kept_type(op.name)} {name}[{self.width}];")
                self.load(op.access, name, first)
                local[op.name] = self.widened(op.access, f"{name}[lane]")
        self.gathers(step, local, first)
        sums = self.sums(step, local, first, target)
        vector_stores = [store for store in step.stores if self.width > 1 and not store.how and self.takes_vector(store.access)]
        for store in vector_stores:
            name = f"{store.access.argument}_to"
            self.put(f"alignas(16) {C_TYPES[self.stored(store.access)]} {name}[{self.width}];")
            target[id(store)] = f"{name}[lane]"
        if self.width > 1:
            self.put("#pragma unroll")
            self.open(f"for (int lane = 0; lane < {self.width}; ++lane)")
            self.unravel_lane(first, axes, kind, "", lane=True)
        elif len(axes) > 1 or self.variables[axes[-1]] != at:
            self.unravel(at, axes, kind)
        for name in arrays:
            if self.width == 1 and first_pass[name] == here and name not in self.plan.caches:
                op = kernel.ops[name]
                self.put(f"{name}_row{item} = {op.access.argument}[{address(kernel, op.access, self.variables)}];")
        self.statements(step, local, target)
        if self.width > 1:
            self.close()
        for store in vector_stores:
            argument, place = store.access.argument, self.vector_address(store.access, first)
            for line in store_vector(self.stored(store.access), self.width, argument, place, f"{argument}_to"):
                self.put(line)
        self.put_all(sums)
        self.drop_unused(begin)

    def gathers(self, step: Pass, local: dict[str, str], first: str) -> None:
        """Loads neighbouring elements at a shared computed position with one instruction, after declaring the operations that determine the
        position."""
        for op in step.elements if self.width > 1 else ():
            if op.kind == "gather" and op.level == "full" and op.name not in local and gathered_vector(self.kernel, op.access, self.width):
                place = self.shared_element(op.access, op.args[0], local, first)
                name = f"{op.name}_{COUNTS[self.width]}"
                self.put(f"alignas(16) {C_TYPES[self.stored(op.access)]} {name}[{self.width}];")
                self.put_all(copy_vector(self.stored(op.access), self.width, name, f"&{place}"))
                local[op.name] = self.widened(op.access, f"{name}[lane]")

    def sums(self, step: Pass, local: dict[str, str], first: str, target: dict[int, str]) -> list[str]:
        """Returns the statements that add neighbouring terms to neighbouring elements in memory with one instruction. `target` specifies where the
        terms are stored."""
        found = []
        for store in step.stores if self.width > 1 else ():
            if summed_vector(self.kernel, store, self.width):
                name = f"{store.access.argument}_to"
                place = self.shared_element(store.access, self.kernel.ops[store.op].args[1], local, first)
                self.put(f"alignas(16) float {name}[{self.width}];")
                target[id(store)] = f"{name}[lane]"
                found.append(f"join_sums(&{place}, {name});")
        return found

    def shared_element(self, access: Access, position: str, local: dict[str, str], first: str) -> str:
        """Returns the first of several neighbouring elements at a shared position, after declaring the operations that determine the position."""
        printer = Expressions(self.kernel, CUDA, self.first_variables(first), local)

        def declare(name: str) -> None:
            op = self.kernel.ops[name]
            if name in local:
                return
            for arg in op.args:
                declare(arg)
            local[name] = text = printer.expression(op)
            if op.kind != "const":
                self.put(f"const {C_TYPES[op.dtype]} {name} = {text};")
                local[name] = name

        declare(position)
        return printer.element(access, position)

    def drop_unused(self, begin: int) -> None:
        """Removes unused index variables that were declared since line `begin`."""
        for at in range(len(self.lines) - 1, begin - 1, -1):
            declared = re.match(r"\s*const (?:int|long) (\w+) = ", self.lines[at])
            name = declared[1] if declared else ""
            if name.removesuffix("_0") in {*self.variables.values(), "at", "slot"} and not any(
                re.search(rf"\b{name}\b", line) for line in self.lines[at + 1 :]
            ):
                del self.lines[at]

    def unravel_lane(self, flat: str, axes: list[int], kind: str, suffix: str, lane: bool = False) -> None:
        """Declares the axis variables of this lane's element or, with a suffix, those of the first of several neighbouring elements."""
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

    def first_variables(self, first: str) -> dict[int, str]:
        """Returns the axis variables of the first of several neighbouring elements."""
        inner = self.kernel.inner
        return {axis: (first if len(inner) == 1 else f"{name}_0") if axis in inner else name for axis, name in self.variables.items()}

    def vector_address(self, access: Access, first: str) -> str:
        return address(self.kernel, access, self.first_variables(first))

    def stored(self, access: Access) -> str:
        """Returns the type in memory."""
        return self.kernel.arguments[access.argument].dtype

    def takes_vector(self, access: Access) -> bool:
        return self.stored(access) in LOADED and (self.width == 1 or vector_access(self.kernel, access, self.width))

    def load(self, access: Access, into: str, first: str) -> None:
        """Loads neighbouring elements into an array without conversion."""
        source = f"({access.argument} + {self.vector_address(access, first)})"
        for line in copy_vector(self.stored(access), self.width, into, source):
            self.put(line)

    def kept_type(self, name: str) -> str:
        """Returns the element type of an array that holds operation `name`. Loaded elements keep their type in memory; results are floats."""
        op = self.kernel.ops[name]
        return C_TYPES[self.stored(op.access)] if op.kind == "load" else "float"

    def widened(self, access: Access, text: str) -> str:
        return widened(text, self.stored(access))

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
            self.put(printer.stored(store))
        if guard:
            self.close()

    def statements(self, step: Pass, known: dict[str, str], target: dict[int, str], suffix: str = "_part", stored: str = "") -> None:
        """Prints the computation for one element. `suffix` is appended to the variables that accumulate reductions, and `stored` is the condition for
        stores."""
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
            elif self.plan.uses(at, op.name) > 1 or width(text) > 72 or self.plan.named(at, op.name):
                self.put(f"const {C_TYPES[op.dtype]} {op.name} = {text};")
                local[op.name] = op.name
        lane = "[item][lane]" if self.width > 1 else "[item]"
        for name in step.keeps:
            self.put(f"{name}_row{lane} = {printer.text(name)};")
        for op in step.reduces:
            name = f"{op.name}{suffix}"
            value = printer.text(op.args[0])
            if op.attr == "argmax":
                best = f"{op.name}_best{suffix}"
                above = f"{value} > {best} || ({value} != {value} && {best} == {best})"
                self.put(f"if ({above}) {best} = {value}, {name} = {printer.text(op.args[1])};")
                continue
            if op.attr == "sum":
                self.put(f"{name} += {value};")
            else:
                sign = ">" if op.attr in ("max", "amax") else "<"
                simple = value if value.isidentifier() or value.endswith("]") else f"({value})"
                nan = f" || {simple} != {simple}" if op.attr in ("amax", "amin") else ""
                self.put(f"{name} = {simple} {sign} {name}{nan} ? {simple} : {name};")
        for store in step.stores:
            place = target.get(id(store))
            text = f"{place} = {printer.text(store.op)};" if place else printer.stored(store)
            self.put(f"{f'if ({stored}) ' if stored else ''}{text}")


def array_bytes(shape: Shape, body: Body, name: str) -> int:
    """Returns how many bytes a block keeps in shared memory for operation `name` and one row."""
    op = body.kernel.ops[name]
    return body.items * shape.threads * body.width * SIZES[body.stored(op.access)]


def shared_bytes(shape: Shape, body: Body) -> int:
    return sum(array_bytes(shape, body, name) for name in body.row_arrays()) if body.shared else 0


def read_again(body: Body, held: set[str]) -> dict[str, int]:
    """Returns, for each tensor, how many passes after the first one read it from memory. Passes that read it from registers or shared memory do not
    count."""
    passes: dict[str, int] = {}
    for step in body.plan.passes:
        for name in {op.access.argument for op in step.elements if op.kind == "load" and op.level == "full" and op.name not in held}:
            passes[name] = passes.get(name, 0) + 1
    return {name: count - 1 for name, count in passes.items() if count > 1}
