"""Prints kernels in Triton. Each kernel is a function over blocks, with a launcher `launch_NAME` that specifies the grid, blocks and warps."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.families import NAME, Printed
from compiler.graph.ir import INNER, Access, Kernel, Op, Store, product
from compiler.kernel.schedule import Pass, schedule
from compiler.targets.triton.expressions import LONG, Expressions, constant, uses
from compiler.targets.triton.shape import TritonShape
from compiler.targets.triton.source import function, launcher, named, sources

START = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")', "amax": 'float("-inf")', "amin": 'float("inf")'}
JOIN = {"max": "tl.maximum", "min": "tl.minimum", "amax": "at_least", "amin": "at_most"}
REDUCE = {"sum": "tl.sum", "max": "tl.max", "min": "tl.min"}


def print_source(kernels: list[tuple[Kernel, TritonShape, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]] = {}) -> str:
    """Returns the functions that are used, then each kernel with its launcher, preceded by its comment lines. `printed` holds the family kernels by
    name, each with the IR kernels printed inside it."""
    parts = sources([kernel for kernel, _, _ in kernels] + [kernel for _, inside, _ in printed.values() for kernel in inside])
    parts += list(dict.fromkeys(text for found, _, _ in printed.values() for text in found.shared))
    parts += [TritonKernel(kernel, shape).text(comment) for kernel, shape, comment in kernels]
    for name, (found, _, comment) in printed.items():
        parts.append("\n".join([*(f"# {line}" for line in comment), found.source.replace(NAME, name)]))
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts)


class TritonKernel:
    def __init__(self, kernel: Kernel, shape: TritonShape):
        self.kernel, self.shape = kernel, shape
        self.plan = schedule(kernel, cache=False)
        self.uses = uses(kernel)
        outer = ["row"] if len(kernel.outer) == 1 else [f"row{n}" for n in range(len(kernel.outer))]
        inner = INNER[: len(kernel.inner)][::-1]
        self.variables = dict(zip(kernel.outer, outer, strict=True)) | dict(zip(kernel.inner, inner, strict=True))
        self.flat = "i" if len(kernel.inner) == 1 else "at"  # the position in a row
        self.whole = shape.style in ("rows", "scan") and shape.block >= kernel.length
        self.lines: list[str] = []
        self.depth = 0
        self.wide = any(argument.elements >= LONG for argument in kernel.arguments.values())
        self.far = shape.style in ("rows", "scan") and any(extent(kernel, access) >= LONG for access in kernel.accesses())
        reach = shape.block if self.whole else shape.block * (self.steps() if shape.style == "split" else 1) * shape.chunks
        inside = "inside" if kernel.inner and (product(kernel.sizes) if shape.style == "elements" else kernel.length) % reach else ""
        in_rows = "in_rows" if kernel.rows % shape.rows else ""
        self.masks = dict.fromkeys(kernel.outer, in_rows) | dict.fromkeys(kernel.inner, inside)
        self.in_rows, self.inside = in_rows, inside

    def text(self, comment: list[str]) -> str:
        head = [f"# {line}" for line in comment]
        if self.shape.style == "split":
            return "\n".join([*head, *self.split(), ""])
        {"elements": self.elements, "rows": self.rows, "scan": self.rows}[self.shape.style]()
        grid = -(-product(self.kernel.sizes) // self.shape.block) if self.shape.style == "elements" else -(-self.kernel.rows // self.shape.rows)
        lines, launch = self.function(f"{self.kernel.name}_kernel", grid)
        return "\n".join([*head, *lines, *launcher(self.kernel.name, self.pointers, [launch]), ""])

    def scratch_floats(self) -> int:
        """Returns the length of the scratch tensor that the launcher takes, or 0 if it takes none."""
        return sum(len(step.reduces) for step in self.plan.passes) * self.kernel.rows * self.shape.chunks if self.shape.style == "split" else 0

    # -- writing ------------------------------------------------------------------------------------------------------------

    def put(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @property
    def pointers(self) -> list[str]:
        return [*self.kernel.arguments, *(["scratch"] if self.shape.style == "split" else [])]

    @property
    def numbers(self) -> dict[str, int]:
        """The kernel's compile-time constants."""
        shape = self.shape
        found = {"BLOCK": shape.block} if self.kernel.inner else {}
        found |= {"ROWS": shape.rows} if shape.rows > 1 else {}
        return found | ({"CHUNKS": shape.chunks} if shape.style == "split" else {})

    def function(self, name: str, grid: int) -> tuple[list[str], str]:
        """Returns the lines collected so far as a kernel, and the kernel's launch."""
        pointers = named(self.pointers, self.lines)
        numbers = {number: value for number, value in self.numbers.items() if named([number], self.lines)}
        lines = function(name, [*pointers, *(f"{number}: tl.constexpr" for number in numbers)], self.lines)
        self.lines, self.depth = [], 0
        values = [*pointers, *(f"{number}={value}" for number, value in numbers.items()), f"num_warps={self.shape.warps}"]
        return lines, f"{name}[({grid},)]({', '.join(values)})"

    # -- index arithmetic ---------------------------------------------------------------------------------------------------

    def used(self, axes: list[int]) -> list[int]:
        read = {axis for access in self.kernel.accesses() for axis, stride in enumerate(access.strides) if stride}
        read |= {op.attr for op in self.kernel.ops.values() if op.kind == "coord"}
        return [axis for axis in axes if axis in read]

    def unravel(self, flat: str, axes: list[int]) -> None:
        """Declares variables for those `axes` that are read, computed from a flat index over all of them."""
        used = self.used(axes)
        left = product(self.kernel.sizes[axis] for axis in axes)
        for at, axis in enumerate(axes):
            size = self.kernel.sizes[axis]
            left //= size
            text = flat if left == 1 else f"{flat} // {left}"
            text = text if at == 0 else f"{text} % {size}"
            if axis in used and self.variables[axis] != flat:
                self.put(f"{self.variables[axis]} = {text}")

    def program(self) -> str:
        return "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"

    def open_rows(self) -> None:
        kernel, shape = self.kernel, self.shape
        program = self.program()
        if shape.style == "split":
            self.put(f"chunk = {program} % CHUNKS")
            program = f"{program} // CHUNKS"
        if not kernel.outer:
            return
        self.put(f"row = {program}" if shape.flat else f"row = {program} * ROWS + tl.arange(0, ROWS)[:, None]")
        if self.in_rows:
            self.put(f"in_rows = row < {kernel.rows}")
        if len(kernel.outer) > 1:
            self.unravel("row", kernel.outer)

    def open_block(self, start: str) -> None:
        """Declares the positions of a block in its row, beginning at `start`."""
        across = "tl.arange(0, BLOCK)" + ("" if self.shape.flat else "[None, :]") + (".to(tl.int64)" if self.far else "")
        self.put(f"{self.flat} = {start} + {across}" if start else f"{self.flat} = {across}")
        size = product(self.kernel.sizes) if self.shape.style == "elements" else self.kernel.length
        if self.inside:
            self.put(f"inside = {self.flat} < {size}")
        self.unravel(self.flat, self.kernel.inner)

    # -- styles -------------------------------------------------------------------------------------------------------------

    def elements(self) -> None:
        if self.kernel.inner:
            self.open_block(f"{self.program()} * BLOCK")
        printer = self.printer({})
        self.put(*printer.declare(self.kernel.ops.values(), self.uses))
        self.store(printer, self.kernel.stores)

    def rows(self) -> None:
        """Prints a kernel that keeps whole rows in registers or processes rows block by block."""
        self.open_rows()
        if not self.whole:
            self.blocks()
            return
        self.open_block("")
        printer = self.printer({})
        for op in self.kernel.ops.values():
            if op.kind == "scan":
                self.put(f"{op.name} = tl.cumsum({self.kept(op, self.full(printer, op))}, axis={int(not self.shape.flat)})")
            elif op.kind == "reduce":
                self.put(f"{op.name} = {self.reduced(op, self.kept(op, self.full(printer, op)))}")
            else:
                self.put(*printer.declare([op], self.uses))
                continue
            printer.known[op.name] = op.name
        self.store(printer, self.kernel.stores)

    def blocks(self) -> None:
        known: dict[str, str] = {}
        for step in self.plan.passes:
            self.row_values(step.rows, known)
            self.loop(step, known)
            for op in step.reduces:
                self.put(f"{op.name} = {self.reduced(op, f'{op.name}_part')}{'.to(tl.float32)' if op.attr == 'sum' else ''}")
                known[op.name] = op.name
        self.row_values(self.plan.tail, known)
        self.store(self.printer(known), self.plan.row_stores)

    def split(self) -> list[str]:
        """Prints each pass as a separate kernel. Programs reduce their chunk of a row into `scratch`, and the next pass combines the chunks."""
        kernel, lines, launches = self.kernel, [], []
        slots: dict[str, int] = {}
        finished: list[Op] = []
        total = len(self.plan.passes) + (1 if self.plan.row_stores and self.plan.passes[-1].reduces else 0)
        across = "tl.arange(0, CHUNKS)" if self.shape.flat else "tl.arange(0, CHUNKS)[None, :]"
        for at in range(total):
            step = self.plan.passes[at] if at < len(self.plan.passes) else Pass()
            self.open_rows()
            known: dict[str, str] = {}
            for op in finished:
                load = f"tl.load({self.slot(slots[op.name])} + {across}{', mask=in_rows' if self.in_rows else ''})"
                self.put(f"{op.name} = {self.reduced(op, load)}")
                known[op.name] = op.name
            if step.elements or step.stores or step.reduces:
                for earlier in self.plan.passes[: at + 1]:
                    self.row_values(earlier.rows, known)
                self.loop(step, known)
            for op in step.reduces:
                slots[op.name] = len(slots)
                part = self.reduced(op, f"{op.name}_part")
                self.put(f"tl.store({self.slot(slots[op.name])} + chunk, {part}{', mask=in_rows' if self.in_rows else ''})")
            finished += step.reduces
            if at == total - 1 and self.plan.row_stores:
                for earlier in self.plan.passes if not step.elements else []:
                    self.row_values(earlier.rows, known)
                self.put("if chunk == 0:")
                self.depth += 1
                self.row_values(self.plan.tail, known)
                self.store(self.printer(known), self.plan.row_stores)
            printed, launch = self.function(f"{kernel.name}_pass{at + 1}", -(-kernel.rows // self.shape.rows) * self.shape.chunks)
            launches.append(launch)
            lines += [*printed, "", ""]
        return [*lines[:-2], *launcher(kernel.name, self.pointers, launches)]

    def slot(self, number: int) -> str:
        """Returns the start of a reduction's parts for each row."""
        if not self.kernel.outer:
            return f"scratch + {number} * CHUNKS" if number else "scratch"
        return f"scratch + ({number * self.kernel.rows} + row) * CHUNKS" if number else "scratch + row * CHUNKS"

    def steps(self) -> int:
        """Returns the number of blocks in a chunk."""
        return -(-self.kernel.length // (self.shape.block * self.shape.chunks))

    # -- a row, block after block -------------------------------------------------------------------------------------------

    def loop(self, step: Pass, known: dict[str, str]) -> None:
        if not (step.elements or step.stores or step.reduces):
            return
        shape, length = self.shape, self.kernel.length
        tile = "[BLOCK]" if shape.flat else "[ROWS, BLOCK]"
        for op in step.reduces:
            zero = f"tl.zeros({tile}, tl.float64)" if op.attr == "sum" else f"tl.full({tile}, {START[op.attr]}, tl.float32)"
            self.put(f"{op.name}_part = {zero}")
        scans = [op for op in step.elements if op.kind == "scan"]
        for op in scans:
            self.put(f"{op.name}_before = tl.zeros({'[1]' if shape.flat else '[ROWS, 1]'}, tl.float64)")
        unroll = f", loop_unroll_factor={shape.unroll}" if shape.unroll > 1 else ""
        if shape.style == "split":
            steps = self.steps()
            self.put(f"for step in {f'tl.range(0, {steps}{unroll})' if unroll else f'range({steps})'}:")
            start = f"(chunk * {steps} + step) * BLOCK"
        else:
            self.put(f"for start in {f'tl.range(0, {length}, BLOCK{unroll})' if unroll else f'range(0, {length}, BLOCK)'}:")
            start = "start"
        self.depth += 1
        self.open_block(start)
        printer = self.printer(dict(known))
        for op in step.elements:
            if op.kind == "scan":
                value = self.kept(op, self.full(printer, op))
                axis = "axis=0" if shape.flat else "axis=1"
                if not value.isidentifier():
                    self.put(f"{op.name}_of = {value}")
                    value = f"{op.name}_of"
                self.put(f"{op.name} = ({op.name}_before + tl.cumsum({value}, {axis})).to(tl.float32)")
                self.put(f"{op.name}_before += tl.sum({value}, {axis}, keep_dims=True)")
                printer.known[op.name] = op.name
            else:
                self.put(*printer.declare([op], self.uses))
        for op in step.reduces:
            value = self.kept(op, printer.text(op.args[0]))
            self.put(f"{op.name}_part += {value}" if op.attr == "sum" else f"{op.name}_part = {JOIN[op.attr]}({op.name}_part, {value})")
        self.store(printer, step.stores)
        self.depth -= 1

    def row_values(self, ops: list[Op], known: dict[str, str]) -> None:
        for op in ops:
            if op.name in known or any(a not in known and self.kernel.ops[a].kind == "reduce" for a in op.args):
                continue
            if op.kind == "const":
                known[op.name] = constant(op.attr, op.dtype)
                continue
            self.put(f"{op.name} = {self.printer(known).expression(op)}")
            known[op.name] = op.name

    # -- statements ---------------------------------------------------------------------------------------------------------

    def printer(self, known: dict[str, str]) -> Expressions:
        return Expressions(self.kernel, self.variables, self.masks, known)

    def full(self, printer: Expressions, op: Op) -> str:
        """Returns the operand of a reduction, broadcast to the whole row if it does not vary along the row."""
        text = printer.text(op.args[0])
        if self.inside or printer.axes(op.args[0]) & set(self.kernel.inner):
            return text
        return f"{printer.inner(op.args[0])} + tl.zeros({'[BLOCK]' if self.shape.flat else '[ROWS, BLOCK]'}, tl.float32)"

    def kept(self, op: Op, value: str) -> str:
        """Masks elements past the end of the row."""
        return f"tl.where(inside, {value}, {START[op.attr]})" if self.inside else value

    def reduced(self, op: Op, value: str) -> str:
        axis, keep = ("0", "") if self.shape.flat else ("1", ", keep_dims=True")
        if op.attr in ("amax", "amin"):
            return f"tl.reduce({value}, {axis}, {JOIN[op.attr]}{keep})"
        return f"{REDUCE[op.attr]}({value}, axis={axis}{keep})"

    def store(self, printer: Expressions, stores: list[Store]) -> None:
        self.put(*(printer.store(store.access, printer.text(store.op)) for store in stores))


def extent(kernel: Kernel, access: Access) -> int:
    """Returns the number of elements that a row spans in memory, since positions in a row are multiplied by strides."""
    return abs(access.offset) + sum((kernel.sizes[axis] - 1) * abs(access.strides[axis]) for axis in kernel.inner)
