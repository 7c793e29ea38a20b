"""Printed CUDA kernels whose threads do not talk to each other, run thread after thread on the CPU: blocks and threads become two loops."""

from __future__ import annotations

import re

SHIM = """\
#include <cmath>
struct Index { int x; };
static thread_local Index blockIdx, threadIdx, gridDim;
#define __global__ static
#define __device__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define cudaGetLastError() 0
#define RUN(grid, threads, call) { gridDim.x = grid; for (int b = 0; b < grid; ++b) for (int t = 0; t < threads; ++t) { \\
    blockIdx.x = b; threadIdx.x = t; call; } }
"""


def as_cpp(program: str) -> str:
    """The program with its kernels built by g++; raises where threads meet."""
    head, rest = program.split('SOURCE = r"""')
    source, tail = rest.split('"""', 1)
    if re.search(r"__syncthreads|__shfl|__shared__|atomic", source):
        raise ValueError("the threads of these kernels meet")
    source = re.sub(r"(\w+)<<<(\d+), (\d+), 0, \(cudaStream_t\)stream>>>\((.*?)\);", r"RUN(\2, \3, \1(\4));", source)
    tail = tail.replace('stitch_build("cuda"', 'stitch_build("cpp"')
    tail = re.sub(r"stream = torch\.cuda\.current_stream\(.*\)\.cuda_stream", "stream = 0", tail)
    return f'{head}SOURCE = r"""{SHIM}{source}"""{tail}'
