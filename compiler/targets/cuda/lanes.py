"""Reductions over interleaved rows on the GPU. Each thread processes a row or a part of it, and neighbouring threads process neighbouring rows.

`groups` threads share a row. Each thread processes every `groups`-th element, and the threads combine their results in shared memory. If a thread's
part is short, it is loaded into registers once. If it is long, every pass rereads it, with several loads in flight and as many separate sums.
"""

from __future__ import annotations

from compiler.graph.ir import Kernel, Op
from compiler.kernel.expressions import Expressions
from compiler.kernel.functions import CUDA
from compiler.kernel.schedule import Pass
from compiler.kernel.shape import Shape
from compiler.kernel.text import below, beyond, end, stride, times
from compiler.targets.cuda.body import HOW, START, Body


class Lanes:
    def __init__(self, kernel: Kernel, shape: Shape, body: Body):
        self.kernel, self.shape, self.body = kernel, shape, body
        self.groups = shape.groups
        self.wide = shape.threads // shape.groups  # rows per block
        self.each = -(-kernel.length // shape.groups)  # number of row elements that one thread visits
        self.held = held_loads(kernel, shape, body)

    def lines(self) -> list[str]:
        kernel, body = self.kernel, self.body
        if self.groups == 1:
            body.put(f"const long row = {times('(long)blockIdx.x', self.wide)} + threadIdx.x;")
            body.put(f"if ({beyond('row', kernel.rows)}) return;")
        else:
            last = end(kernel.rows - 1) if kernel.rows % self.wide else ""
            body.put(f"const int group = threadIdx.x / {self.wide};")
            body.put(f"const long mine = {times('(long)blockIdx.x', self.wide)} + threadIdx.x % {self.wide};")
            body.put(f"const long row = {below('mine', kernel.rows)} ? mine : {last};" if last else "const long row = mine;")
        if len(kernel.outer) > 1:
            body.unravel("row", kernel.outer, "long")
        for name in self.held:
            body.put(f"float {name}_row[{self.each}];")
        known: dict[str, str] = {}
        for at, step in enumerate(body.plan.passes):
            body.row_values(step.rows, known)
            parts = self.parts(step)
            for op in step.reduces:
                body.put(self.declaration(op, parts))
            if step.elements or step.stores:
                self.walk(at, step, known, parts)
            for op in step.reduces:
                self.join(op, parts)
                known[op.name] = op.name
        body.finish(known, self.storing())
        return body.take()

    def storing(self) -> str:
        """Returns the condition under which a thread writes per-row values."""
        if self.groups == 1:
            return ""
        return "group == 0" + (f" && {below('mine', self.kernel.rows)}" if self.kernel.rows % self.wide else "")

    def parts(self, step: Pass) -> int:
        """Returns the number of separate sums and maxima that a thread keeps to shorten the dependency chains."""
        if not step.reduces or len(self.kernel.inner) > 1 or self.held:
            return 1
        parts = self.shape.unroll or (8 if self.each >= 64 else 1)
        return parts if self.each % parts == 0 and self.kernel.length % self.groups == 0 else 1

    def declaration(self, op: Op, parts: int) -> str:
        if op.attr == "argmax":
            best = f"float {op.name}_best_part{'s' if parts > 1 else ''}"
            if parts == 1:
                return f"{best} = -INFINITY; long long {op.name}_part = 0;"
            return f"{best}[{parts}] = {{{', '.join(['-INFINITY'] * parts)}}}; long long {op.name}_parts[{parts}] = {{}};"
        kind = "double" if op.dtype == "float64" else "float"
        if parts == 1:
            return f"{kind} {op.name}_part = {START[op.attr]};"
        return f"{kind} {op.name}_parts[{parts}] = {{{', '.join([START[op.attr]] * parts)}}};"

    def walk(self, at: int, step: Pass, known: dict[str, str], parts: int) -> None:
        """Prints the loop over this thread's elements."""
        kernel, body, size = self.kernel, self.body, self.kernel.length
        local = dict(known)
        first = {name: min(n for n, s in enumerate(body.plan.passes) if any(op.name == name for op in s.elements)) for name in self.held}
        if self.held or self.groups > 1 or parts > 1:
            apart = f" * {stride(self.groups, '' if parts > 1 else 'item')} + group" if self.groups > 1 else ""
            flat = body.variables[kernel.inner[0]] if len(kernel.inner) == 1 else "at"
            if parts > 1:
                body.open(f"for (int item = 0; item < {self.each}; item += {parts})")
                body.put("#pragma unroll")
                body.open(f"for (int part = 0; part < {parts}; ++part)")
                body.put(f"const long {flat} = {f'(item + part){apart}' if apart else 'item + part'};")
            else:
                if self.held:
                    body.put("#pragma unroll")
                elif self.shape.unroll:
                    body.put(f"#pragma unroll {self.shape.unroll}")
                body.open(f"for (int item = 0; item < {self.each}; ++item)")
                body.put(f"const long {flat} = item{apart};")
                if size % self.groups:
                    body.put(f"if ({beyond(flat, size)}) break;" if not self.held else f"if ({below(flat, size)})")
                    if self.held:
                        body.lines[-1] += " {"
                        body.depth += 1
            body.unravel(flat, kernel.inner, "long")
            for name in self.held:
                local[name] = f"{name}_row[item]"
                if first[name] == at:
                    body.put(f"{name}_row[item] = {Expressions(kernel, CUDA, body.variables, {}).expression(kernel.ops[name])};")
            guard = step.stores and self.groups > 1 and kernel.rows % self.wide
            body.statements(step, local, {}, suffix="_parts[part]" if parts > 1 else "_part", stored=below("mine", kernel.rows) if guard else "")
            body.close(1 + (parts > 1) + bool(self.held and size % self.groups))
            return
        for axis in kernel.inner:
            name = body.variables[axis]
            if self.shape.unroll and axis == kernel.inner[-1]:
                body.put(f"#pragma unroll {self.shape.unroll}")
            elif axis == kernel.inner[-1] and kernel.sizes[axis] <= 16:
                body.put("#pragma unroll")
            body.open(f"for (long {name} = 0; {name} < {kernel.sizes[axis]}; ++{name})")
        body.statements(step, local, {})
        body.close(len(kernel.inner))

    def join(self, op: Op, parts: int) -> None:
        if op.attr == "argmax":
            self.join_places(op, parts)
            return
        body, how = self.body, HOW[op.attr]
        kind = "double" if op.dtype == "float64" else "float"
        value = f"{op.name}_part"
        if parts > 1:
            body.put(f"{kind} {value} = {op.name}_parts[0];")
            body.put(f"for (int part = 1; part < {parts}; ++part) {value} = {how}::join({value}, {op.name}_parts[part]);")
        value = f"over_groups<{how}, {self.wide}, {self.groups}>({value})" if self.groups > 1 else value
        body.put(f"const {kind} {op.name} = {value};")

    def join_places(self, op: Op, parts: int) -> None:
        body = self.body
        if parts == 1 and self.groups == 1:
            body.put(f"const long long {op.name} = {op.name}_part;")
            return
        each = "s[{0}]" if parts > 1 else ""
        body.put(f"long long {op.name}_rank = ranked({op.name}_best_part{each.format(0)}, {op.name}_part{each.format(0)});")
        if parts > 1:
            rank = f"ranked({op.name}_best_parts[part], {op.name}_parts[part])"
            body.put(f"for (int part = 1; part < {parts}; ++part) {op.name}_rank = Max::join({op.name}_rank, {rank});")
        rank = f"over_groups<Max, {self.wide}, {self.groups}>({op.name}_rank)" if self.groups > 1 else f"{op.name}_rank"
        body.put(f"const long long {op.name} = place_of({rank});")


def held_loads(kernel: Kernel, shape: Shape, body: Body) -> list[str]:
    """Returns the loads that several passes read, if a thread can keep its elements in registers."""
    counts: dict[str, int] = {}
    for step in body.plan.passes:
        for op in step.elements:
            if op.kind == "load" and op.level == "full" and op.dtype == "float32":
                counts[op.name] = counts.get(op.name, 0) + 1
    again = [name for name, count in counts.items() if count > 1]
    return again if shape.cache and len(again) * -(-kernel.length // shape.groups) <= shape.held else []
