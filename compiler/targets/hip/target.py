"""HIP for AMD's GPUs: the kernels of CUDA under HIP's names. It is printed only, since no verifier here builds it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from compiler.families import Printed, Refused, Work
from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel
from compiler.kernel.shape import Shape
from compiler.options import Options
from compiler.targets.cuda.target import CHECK, Cuda

PROLOGUE = """\
#include <hip/hip_runtime.h>
// The kernels count lanes in warps of 32, whatever the width of a wavefront.
#define __shfl_xor_sync(lanes, value, step) __shfl_xor(value, step, 32)
#define __shfl_up_sync(lanes, value, step) __shfl_up(value, step, 32)
"""
NAMES = {"cudaStream_t": "hipStream_t", "cudaGetLastError": "hipGetLastError", "cuda_fp16.h": "hip/hip_fp16.h", "cuda_bf16.h": "hip/hip_bf16.h",
         "__nv_bfloat16": "__hip_bfloat16"}  # fmt: skip
KNOWN = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in NAMES))
FOREIGN = re.compile(r"\basm\b|\bcuda[A-Z]\w*|\b__(?!shfl_(?:xor|up)_)\w+_sync\b|\b__syncwarp\b")  # PTX, and names that are not in the table


class Hip(Cuda):
    language, title = "hip", "HIP"
    check = CHECK.replace("CUDA error", "HIP error")

    @property
    def dialect(self) -> str:
        return "cuda"

    def print_family(self, work: Work) -> Printed:
        printed = super().print_family(work)
        if found := FOREIGN.search(KNOWN.sub("", "\n".join([printed.source, *printed.shared]))):
            raise Refused(f"a kernel with {found[0]} is written for NVIDIA's processors alone")
        return printed

    def shape_of(self, kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> Shape:
        """As on an NVIDIA GPU whose capability is not known: neither clusters of blocks nor bulk copies."""
        return super().shape_of(kernel, figures.model_copy(update={"capability": None}), options, group)

    def print(self, kernels: list[tuple[Kernel, Shape, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]]) -> str:
        return PROLOGUE + KNOWN.sub(lambda name: NAMES[name[0]], super().print(kernels, printed))
