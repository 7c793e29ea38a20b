"""The text at the beginning of every program in the set: the build helper, and a loader whose functions take tensors, ints and floats.

It is inserted into programs instead of being imported, because a program is a single source.
"""

from __future__ import annotations

from pathlib import Path

HELPER = (Path(__file__).resolve().parents[2] / "verifier" / "build" / "inline_helper.py").read_text()

COMMON = r"""
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

__device__ __forceinline__ float warp_sum(float v) {
    for (int offset = 16; offset; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}

__device__ __forceinline__ float warp_max(float v) {
    for (int offset = 16; offset; offset >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
    return v;
}

// Over all threads of a block of whole warps; every thread gets the result.
__device__ __forceinline__ float block_sum(float v) {
    __shared__ float part[32];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    v = warp_sum(v);
    __syncthreads();
    if (lane == 0) part[warp] = v;
    __syncthreads();
    return warp_sum(lane < warps ? part[lane] : 0.0f);
}

__device__ __forceinline__ float block_max(float v) {
    __shared__ float part[32];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    v = warp_max(v);
    __syncthreads();
    if (lane == 0) part[warp] = v;
    __syncthreads();
    return warp_max(lane < warps ? part[lane] : -INFINITY);
}
"""

LOADER = '''

def load(source):
    """Calls by name with tensors (as pointers), ints and floats, on the current stream; raises where a launch fails."""
    library = stitch_build("cuda", COMMON + source)

    def argument(value):
        if isinstance(value, torch.Tensor):
            return ctypes.c_void_p(value.data_ptr())
        return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int(value)

    def launch(name, *values):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = getattr(library, name)(*[argument(value) for value in values], stream)
        if code:
            raise RuntimeError("%s: CUDA error %d" % (name, code))

    return launch


'''


def prelude() -> str:
    head = "import ctypes\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
    return f'{head}{HELPER.rstrip()}\n\nCOMMON = r"""{COMMON}"""\n{LOADER}'
