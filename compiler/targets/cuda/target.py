"""CUDA C++ for NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.families import Printed
from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel
from compiler.kernel.schedule import Schedule
from compiler.kernel.shape import Shape, shape_of
from compiler.options import Options
from compiler.targets.cuda import printing
from compiler.targets.cuda.knobs import knobs_of
from compiler.targets.library import Library
from compiler.targets.target import Offered, Step

BLOCKS = (128, 256, 512, 1024)
CHECK = '''

def check(status):
    """A launch reports its error as a number; 0 is none."""
    if status != 0:
        raise RuntimeError(f"a kernel could not be launched: CUDA error {status}")
'''


class Cuda(Library[Shape]):
    language, title, on_gpu = "cuda", "CUDA", True
    check, trailing = CHECK, ("stream",)

    def shape_of(self, kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> Shape:
        return shape_of(kernel, figures, options, group)

    def passes(self, kernel: Kernel, shape: Shape) -> Schedule:
        return printing.CudaKernel(kernel, shape).body.plan

    def body(self, kernel: Kernel, shape: Shape) -> str:
        return printing.CudaKernel(kernel, shape).text([])

    def scratch_floats(self, kernel: Kernel, shape: Shape) -> int:
        return printing.CudaKernel(kernel, shape).scratch_floats()

    def read_again(self, kernel: Kernel, shape: Shape) -> dict[str, int]:
        return printing.CudaKernel(kernel, shape).read_again()

    def print(self, kernels: list[tuple[Kernel, Shape, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]]) -> str:
        return printing.print_source(kernels, printed)

    def begin(self, tensor: str | None) -> list[str]:
        # Gets the raw stream in the same way as PyTorch's own compiler, because torch.cuda.current_stream would create an object.
        raw = f"torch._C._cuda_getCurrentRawStream({tensor}.get_device())"
        return [f"stream = {raw if tensor else 'torch.cuda.current_stream().cuda_stream'}"]

    def knobs_of(self, kernel: Kernel, shape: Shape, figures: DeviceFigures) -> Offered:
        return knobs_of(kernel, shape)

    def steps(self, kernel: Kernel, shape: Shape) -> list[Step]:
        least_row = shape.style == "rows" and not shape.warp_rows
        others = [n for n in BLOCKS if n in (shape.threads // 2, shape.threads * 2) and kernel.length >= (n if least_row else 1)]
        told = "{value} instead of {now} threads a block"
        return [Step("block", shape.threads, others, told, "the structure stays, a number changes")]
