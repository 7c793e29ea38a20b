"""C++ with OpenMP for CPUs."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.families import Printed
from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel
from compiler.kernel.schedule import Schedule
from compiler.kernel.shape import Shape, shape_of, streams
from compiler.options import Options
from compiler.targets.cpp import printing
from compiler.targets.cpp.knobs import knobs_of
from compiler.targets.library import Library
from compiler.targets.target import Offered, Step


class Cpp(Library[Shape]):
    language, title, on_gpu = "cpp", "C++ with OpenMP", False

    def shape_of(self, kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> Shape:
        return shape_of(kernel, figures, options, group)

    def passes(self, kernel: Kernel, shape: Shape) -> Schedule:
        return printing.CppKernel(kernel, shape).plan

    def body(self, kernel: Kernel, shape: Shape) -> str:
        return printing.CppKernel(kernel, shape).text([])

    def print(self, kernels: list[tuple[Kernel, Shape, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]]) -> str:
        return printing.print_source(kernels, printed)

    def knobs_of(self, kernel: Kernel, shape: Shape, figures: DeviceFigures) -> Offered:
        return knobs_of(kernel, shape, figures)

    def steps(self, kernel: Kernel, shape: Shape) -> list[Step]:
        """Offers a knob for the number of rows whose running sums advance together."""
        if shape.style != "scan":
            return []
        others = [n for n in (4, 16) if kernel.rows % n == 0]
        return [Step("scan-rows", shape.lanes, others, "{value} instead of {now} rows at a time", "the structure stays, a number changes")]

    def could_stream(self, kernel: Kernel, shape: Shape) -> bool:
        return not shape.stream and shape.style in ("rows", "elements") and streams(kernel)
