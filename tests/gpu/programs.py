"""Sources for the tests on a GPU: tasks in KernelBench's format and programs with hand-written CUDA kernels."""

from pathlib import Path

from verifier.build import inline_helper

HELPER = Path(inline_helper.__file__).read_text()

SOFTMAX = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.rand(4096, 8192) * 8 - 4]


def get_init_inputs():
    return []
"""

NORM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


def get_inputs():
    return [torch.randn(2048, 1024)]


def get_init_inputs():
    return [1024]
"""

NORM_PROGRAM = NORM.replace("class Model(", "class ModelNew(")

_KERNELS = r"""
#include <cuda_runtime.h>

// One block a row: the row stays in registers between the three steps, so it is read once and written once.
template <int VECTORS>
__global__ void __launch_bounds__(1024) row_softmax(const float4* __restrict__ x, float4* __restrict__ y, int columns4) {
  __shared__ float shared[32];
  const float4* row = x + (size_t)blockIdx.x * columns4;
  float4* out = y + (size_t)blockIdx.x * columns4;
  float4 held[VECTORS];
  float top = -INFINITY;
  #pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    held[i] = row[threadIdx.x + i * blockDim.x];
    top = fmaxf(top, fmaxf(fmaxf(held[i].x, held[i].y), fmaxf(held[i].z, held[i].w)));
  }
  auto reduce = [&](float v, bool maximum) {
    for (int o = 16; o; o >>= 1) { float w = __shfl_xor_sync(~0u, v, o); v = maximum ? fmaxf(v, w) : v + w; }
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : (maximum ? -INFINITY : 0.f);
    for (int o = 16; o; o >>= 1) { float w = __shfl_xor_sync(~0u, v, o); v = maximum ? fmaxf(v, w) : v + w; }
    return v;
  };
  top = reduce(top, true);
  float sum = 0.f;
  #pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    held[i].x = expf(held[i].x - top); held[i].y = expf(held[i].y - top);
    held[i].z = expf(held[i].z - top); held[i].w = expf(held[i].w - top);
    sum += held[i].x + held[i].y + held[i].z + held[i].w;
  }
  float scale = 1.f / reduce(sum, false);
  #pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    held[i].x *= scale; held[i].y *= scale; held[i].z *= scale; held[i].w *= scale;
    out[threadIdx.x + i * blockDim.x] = held[i];
  }
}

__global__ void beyond(float* p) { p[(size_t)1 << 40] = 1.f; }

extern "C" int softmax(const float* x, float* y, int rows, int columns, void* stream) {
  row_softmax<4><<<rows, columns / 16, 0, (cudaStream_t)stream>>>((const float4*)x, (float4*)y, columns / 4);
  return (int)cudaGetLastError();
}

extern "C" int crash(float* p) { beyond<<<1, 1>>>(p); return (int)cudaGetLastError(); }
"""

_HEAD = f'''import ctypes

import torch
import torch.nn as nn

{HELPER}

SOURCE = r"""{_KERNELS}"""
LIBRARY = stitch_build("cuda", SOURCE)
LIBRARY.softmax.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
LIBRARY.crash.argtypes = [ctypes.c_void_p]
'''

SOFTMAX_PROGRAM = (
    _HEAD
    + """

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        if LIBRARY.softmax(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], stream):
            raise RuntimeError("the kernel was not launched")
        return y
"""
)

CRASHING_PROGRAM = (
    _HEAD
    + """

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, -1)
        LIBRARY.crash(y.data_ptr())
        return y
"""
)

TRITON_PROGRAM = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + offsets, values / tl.sum(values, 0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_row[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=16)
        return y
"""
