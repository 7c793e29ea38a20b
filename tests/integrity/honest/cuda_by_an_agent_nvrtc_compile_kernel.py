# task: tasks/agents_nvrtc_compile_kernel.py
# device: cuda
# says: as an agent writes it: NVRTC by torch.cuda._compile_kernel at the first call, no extension
"""Column-wise minimum, compiled with NVRTC through torch (no C++ toolchain, no build directory)."""
import functools

import torch
import torch.nn as nn

_SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256) min_dim1(const float4* __restrict__ x, float4* __restrict__ y, int reduce, int inner4) {
    __shared__ float4 part[8][32];
    const int lane = threadIdx.x % 32, slice = threadIdx.x / 32;
    const int col = blockIdx.x * 32 + lane;
    const float inf = __int_as_float(0x7f800000);
    float4 m = make_float4(inf, inf, inf, inf);
    const float4* base = x + (size_t)blockIdx.y * reduce * inner4 + col;
    #define LOWER(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
    if (col < inner4) {
        #pragma unroll 8
        for (int r = slice; r < reduce; r += 8) {
            const float4 v = base[(size_t)r * inner4];
            m.x = LOWER(m.x, v.x); m.y = LOWER(m.y, v.y); m.z = LOWER(m.z, v.z); m.w = LOWER(m.w, v.w);
        }
    }
    part[slice][lane] = m;
    __syncthreads();
    if (slice == 0 && col < inner4) {
        for (int s = 1; s < 8; ++s) {
            const float4 v = part[s][lane];
            m.x = LOWER(m.x, v.x); m.y = LOWER(m.y, v.y); m.z = LOWER(m.z, v.z); m.w = LOWER(m.w, v.w);
        }
        y[(size_t)blockIdx.y * inner4 + col] = m;
    }
}
"""


@functools.cache
def _kernel():
    return torch.cuda._compile_kernel(_SOURCE, "min_dim1")


class ModelNew(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() != 3 or self.dim != 1 or x.shape[2] % 4 or x.dtype != torch.float32:
            return torch.min(x, dim=self.dim)[0]
        x = x.contiguous()
        batch, reduce, inner = x.shape
        y = torch.empty((batch, inner), device=x.device, dtype=x.dtype)
        _kernel()(grid=((inner // 4 + 31) // 32, batch, 1), block=(256, 1, 1), args=[x, y, reduce, inner // 4])
        return y
