"""The Triton target, in which kernels and their launchers are functions of the program's module."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.families import Printed
from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel
from compiler.kernel.schedule import Schedule
from compiler.options import Options
from compiler.targets.target import Names, Offered, Step, Target, neighbours
from compiler.targets.triton import printing
from compiler.targets.triton.expressions import RESERVED, check_covered
from compiler.targets.triton.shape import TritonShape, knobs_of, triton_shape_of
from compiler.targets.triton.source import IMPORTS, LIBDEVICE


class Triton(Target[TritonShape]):
    language, title, on_gpu = "triton", "Triton", True
    reserved, in_module = RESERVED, True

    def check_covered(self, kernel: Kernel) -> None:
        check_covered(kernel)

    def shape_of(self, kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> TritonShape:
        return triton_shape_of(kernel, figures, options, group)

    def passes(self, kernel: Kernel, shape: TritonShape) -> Schedule:
        return printing.TritonKernel(kernel, shape).plan

    def body(self, kernel: Kernel, shape: TritonShape) -> str:
        return printing.TritonKernel(kernel, shape).text([])

    def scratch_floats(self, kernel: Kernel, shape: TritonShape) -> int:
        return printing.TritonKernel(kernel, shape).scratch_floats()

    def print(self, kernels: list[tuple[Kernel, TritonShape, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]]) -> str:
        return printing.print_source(kernels, printed)

    def imports(self, task: list[str], source: str) -> list[str]:
        wanted = [*IMPORTS, *([LIBDEVICE] if "libdevice." in source else [])]
        return [*task, *(line for line in wanted if line not in task)]

    def module(self, source: str, pointers: Mapping[str, int], flags: tuple[str, ...], names: Names) -> str:
        return f"\n{source}"

    def pointer(self, variable: str, shift: int = 0) -> str:
        return variable

    def call(self, name: str, pointers: list[str], names: Names) -> str:
        return f"launch_{name}({', '.join(pointers)})"

    def knobs_of(self, kernel: Kernel, shape: TritonShape, figures: DeviceFigures) -> Offered:
        return knobs_of(kernel, shape)

    def steps(self, kernel: Kernel, shape: TritonShape) -> list[Step]:
        return neighbours(knobs_of(kernel, shape))
