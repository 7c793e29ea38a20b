"""Kernels as CUDA C++ behind a plain C ABI: a launcher takes device pointers and a stream and returns the launch's error."""

from __future__ import annotations

from collections.abc import Mapping

from agents.compiler.families import NAME, Printed
from agents.compiler.ir import Kernel, Op, product
from agents.compiler.kernels.cuda_body import HOW, START, Body
from agents.compiler.kernels.expressions import CUDA, POINTED, Expressions, functions_used
from agents.compiler.kernels.math_cuda import sources
from agents.compiler.kernels.schedule import Pass
from agents.compiler.kernels.shape import Shape


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
    """One kernel in the style of its shape, with its launcher."""

    def __init__(self, kernel: Kernel, shape: Shape):
        self.kernel, self.shape, self.body = kernel, shape, Body(kernel, shape)

    def text(self, comment: list[str]) -> str:
        head = [f"// {line}" for line in comment]
        if self.shape.style == "split":
            return "\n".join([*head, *self.split(), ""])
        {"elements": self.elements, "rows": self.rows, "lanes": self.lanes, "scan": self.scan}[self.shape.style]()
        grid = {
            "elements": self.grid_of(-(-product(self.kernel.sizes) // (self.body.width * self.shape.work))),
            "rows": -(-self.kernel.rows // (self.shape.threads // self.body.team)),
            "lanes": -(-self.kernel.rows // self.shape.threads),
            "scan": self.kernel.rows,
        }[self.shape.style]
        lines = self.function(f"{self.kernel.name}_kernel", self.parameters())
        return "\n".join([*head, *lines, *self.launcher([(f"{self.kernel.name}_kernel", grid)]), ""])

    def grid_of(self, work: int) -> int:
        return max(1, min(-(-work // self.shape.threads), 65535))

    def function(self, name: str, parameters: list[str]) -> list[str]:
        bounds = f"{self.shape.threads}, {self.shape.resident}" if self.shape.resident else f"{self.shape.threads}"
        return [f"__global__ void __launch_bounds__({bounds}) {name}({', '.join(parameters)}) {{", *self.body.take(), "}"]

    def launcher(self, launches: list[tuple[str, int]], scratch: bool = False) -> list[str]:
        parameters = [*self.parameters(), *(["float* __restrict__ scratch"] if scratch else []), "void* stream"]
        names = ", ".join([*self.kernel.arguments, *(["scratch"] if scratch else [])])
        lines = [f'extern "C" int {self.kernel.name}({", ".join(parameters)}) {{']
        lines += [f"    {name}<<<{grid}, {self.shape.threads}, 0, (cudaStream_t)stream>>>({names});" for name, grid in launches]
        return [*lines, "    return (int)cudaGetLastError();", "}"]

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
        if self.shape.work > 1:
            body.put(f"#pragma unroll {self.shape.work}")
        body.open(f"for (long at = (long)blockIdx.x * {self.shape.threads} + threadIdx.x; at < {work}; at += (long)gridDim.x * {self.shape.threads})")
        body.vector_body(step, {}, f"at * {body.width}" if body.width > 1 else "at", "long")
        body.close()

    def rows(self) -> None:
        kernel, body = self.kernel, self.body
        body.open_rows()
        for name in body.row_arrays():
            place = f"[{body.items}][{body.width}]" if body.width > 1 else f"[{body.items}]"
            body.put(f"{'alignas(16) ' if body.width > 1 else ''}float {name}_row{place};")
        known: dict[str, str] = {}
        for step in body.plan.passes:
            body.row_values(step.rows, known)
            body.declare(step)
            body.items_loop(step, known, body.team, kernel.length)
            for op in step.reduces:
                body.combine(op, known)
        body.finish(known, "thread == 0")

    def split(self) -> list[str]:
        """Each pass is a kernel: blocks sum up their chunk of a row into `scratch`, the next pass sums up the chunks."""
        kernel, body, lines, launches, chunks = self.kernel, self.body, [], [], self.shape.chunks
        parameters = [*self.parameters(), "float* __restrict__ scratch"]
        slots: dict[str, int] = {}
        finished: list[Op] = []
        last_full = max((at for at, step in enumerate(body.plan.passes) if step.stores), default=-1)
        total = len(body.plan.passes) + (1 if body.plan.row_stores and body.plan.passes[-1].reduces else 0)
        for at in range(total):
            step = body.plan.passes[at] if at < len(body.plan.passes) else Pass()
            body.put(f"const long row = blockIdx.x / {chunks};")
            body.put(f"const int chunk = blockIdx.x % {chunks}, thread = threadIdx.x;")
            if len(kernel.outer) > 1:
                body.unravel("row", kernel.outer, "long")
            known: dict[str, str] = {}
            for op in finished:
                body.put(
                    f"float {op.name} = thread < {chunks} ? scratch[({slots[op.name]} * {kernel.rows} + row) * {chunks} + thread] : {START[op.attr]};"
                )
                body.put(f"{op.name} = over_block<{HOW[op.attr]}, {self.shape.threads}>({op.name}, {START[op.attr]});")
                known[op.name] = op.name
            if step.elements or step.stores or step.reduces:
                for earlier in body.plan.passes[: at + 1]:
                    body.row_values(earlier.rows, known)
                body.declare(step)
                body.items_loop(step, known, self.shape.threads * chunks, kernel.length, f"(chunk * {self.shape.threads} + thread)")
            for op in step.reduces:
                slots[op.name] = len(slots)
                body.combine(op, known)
                body.put(f"if (thread == 0) scratch[({slots[op.name]} * {kernel.rows} + row) * {chunks} + chunk] = {known[op.name]};")
            finished += step.reduces
            if at == total - 1:
                if not step.elements:
                    for earlier in body.plan.passes:
                        body.row_values(earlier.rows, known)
                body.finish(known, "chunk == 0 && thread == 0")
            name = f"{kernel.name}_pass{at + 1}"
            launches.append((name, kernel.rows * chunks))
            lines += [*self.function(name, parameters), ""]
        assert last_full < total
        return [*lines, *self.launcher(launches, scratch=True)]

    def scratch_floats(self) -> int:
        """Length of the scratch tensor that the launcher takes; 0 where it takes none."""
        return sum(len(step.reduces) for step in self.body.plan.passes) * self.kernel.rows * self.shape.chunks if self.shape.style == "split" else 0

    def lanes(self) -> None:
        kernel, body = self.kernel, self.body
        body.put(f"const long row = (long)blockIdx.x * {self.shape.threads} + threadIdx.x;")
        body.put(f"if (row >= {kernel.rows}) return;")
        if len(kernel.outer) > 1:
            body.unravel("row", kernel.outer, "long")
        known: dict[str, str] = {}
        for step in body.plan.passes:
            body.row_values(step.rows, known)
            for op in step.reduces:
                body.put(f"float {op.name} = {START[op.attr]};")
            if step.elements or step.stores:
                for axis in kernel.inner:
                    name = body.variables[axis]
                    if self.shape.unroll and axis == kernel.inner[-1]:
                        body.put(f"#pragma unroll {self.shape.unroll}")
                    body.open(f"for (long {name} = 0; {name} < {kernel.sizes[axis]}; ++{name})")
                body.statements(step, known, {})
                body.close(len(kernel.inner))
            known.update({op.name: op.name for op in step.reduces})
        body.finish(known, "")

    def scan(self) -> None:
        """Tiles of a few elements a thread; what came before a thread is summed over the block, what came before the tile is carried."""
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
        body.put(f"const long at = tile + thread * {each} + lane;")
        guard = size % tile != 0
        if guard:
            body.open(f"if (at < {size})")
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
        body.put(f"const long at = tile + thread * {each} + lane;")
        if guard:
            body.put(f"if (at >= {size}) break;")
        body.unravel("at", kernel.inner, "long")
        local = dict(known) | {op.name: f"(float)({op.name}_before + {op.name}_part[lane])" for op in scans}
        body.statements(step, local, {})
        body.close(2)
