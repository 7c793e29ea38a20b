# task: tasks/agents_softmax_lazy.py
# device: cuda
# says: as an agent writes it: singleton _ext = None, built in the first forward; sys.exit and argparse in a self-test; unused imports; no_grad decorator
import argparse
import json
import sys
import time
from typing import Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

__all__ = ["ModelNew"]

_CUDA_SRC = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cfloat>

constexpr int THREADS = 512;

struct MaxSum { float m; float s; };

__device__ __forceinline__ MaxSum combine(MaxSum a, MaxSum b) {
    const bool a_bigger = a.m > b.m;
    const MaxSum hi = a_bigger ? a : b;
    const MaxSum lo = a_bigger ? b : a;
    MaxSum r;
    r.m = hi.m;
    r.s = hi.s + (lo.s == 0.f ? 0.f : lo.s * __expf(lo.m - hi.m));
    return r;
}

// One block per row; the row lives in registers between the two passes.
template <int VPT>   // float4 vectors per thread
__global__ void __launch_bounds__(THREADS) softmax_reg_kernel(const float4* __restrict__ x, float4* __restrict__ y, int cols4) {
    __shared__ MaxSum partial[THREADS / 32];
    const size_t base = (size_t)blockIdx.x * cols4;
    const int tid = threadIdx.x;
    float4 v[VPT];
    MaxSum t{-INFINITY, 0.f};
    #pragma unroll
    for (int i = 0; i < VPT; ++i) {
        v[i] = __ldcs(x + base + tid + i * THREADS);
        t.m = fmaxf(t.m, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
    }
    #pragma unroll
    for (int i = 0; i < VPT; ++i) {
        t.s += expf(v[i].x - t.m) + expf(v[i].y - t.m) + expf(v[i].z - t.m) + expf(v[i].w - t.m);
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        MaxSum other{__shfl_xor_sync(0xffffffffu, t.m, o), __shfl_xor_sync(0xffffffffu, t.s, o)};
        t = combine(t, other);
    }
    if ((tid & 31) == 0) partial[tid >> 5] = t;
    __syncthreads();
    MaxSum all = partial[0];
    #pragma unroll
    for (int w = 1; w < THREADS / 32; ++w) all = combine(all, partial[w]);
    const float inv = 1.f / all.s;
    #pragma unroll
    for (int i = 0; i < VPT; ++i) {
        float4 o;
        o.x = expf(v[i].x - all.m) * inv;
        o.y = expf(v[i].y - all.m) * inv;
        o.z = expf(v[i].z - all.m) * inv;
        o.w = expf(v[i].w - all.m) * inv;
        __stcs(y + base + tid + i * THREADS, o);
    }
}

// Fallback for any width.
__global__ void softmax_any_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ MaxSum partial[THREADS / 32];
    const float* row = x + (size_t)blockIdx.x * cols;
    float* out = y + (size_t)blockIdx.x * cols;
    MaxSum t{-INFINITY, 0.f};
    for (int c = threadIdx.x; c < cols; c += THREADS) t = combine(t, MaxSum{row[c], 1.f});
    for (int o = 16; o > 0; o >>= 1) {
        MaxSum other{__shfl_xor_sync(0xffffffffu, t.m, o), __shfl_xor_sync(0xffffffffu, t.s, o)};
        t = combine(t, other);
    }
    if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = t;
    __syncthreads();
    MaxSum all = partial[0];
    for (int w = 1; w < THREADS / 32; ++w) all = combine(all, partial[w]);
    for (int c = threadIdx.x; c < cols; c += THREADS) out[c] = expf(row[c] - all.m) / all.s;
}

torch::Tensor softmax_forward(torch::Tensor x) {
    const int rows = x.size(0), cols = x.size(1);
    auto y = torch::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    const bool aligned = reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 == 0;
    if (aligned && cols == THREADS * 4 * 4) {
        softmax_reg_kernel<4><<<rows, THREADS, 0, stream>>>(
            reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), cols / 4);
    } else {
        softmax_any_kernel<<<rows, THREADS, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), cols);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
'''

_CPP_SRC = 'torch::Tensor softmax_forward(torch::Tensor x);'

_ext: Optional[object] = None


def _get_ext():
    """Compile once per process, on first use."""
    global _ext
    if _ext is None:
        from torch.utils.cpp_extension import load_inline

        _ext = load_inline(
            name="row_softmax_v3",
            cpp_sources=[_CPP_SRC],
            cuda_sources=[_CUDA_SRC],
            functions=["softmax_forward"],
            extra_cuda_cflags=["-O3", "-lineinfo"],
            verbose=False,
        )
    return _ext


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_cuda:
            return F.softmax(x, dim=1)
        if not x.is_contiguous():
            x = x.contiguous()
        return _get_ext().softmax_forward(x)


def _self_test(args) -> int:
    torch.manual_seed(0)
    x = torch.randn(args.rows, args.cols, device="cuda")
    model = ModelNew().cuda()
    got, want = model(x), torch.softmax(x, dim=1)
    err = (got - want).abs().max().item()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin = time.perf_counter()
    start.record()
    for _ in range(50):
        model(x)
    stop.record()
    torch.cuda.synchronize()
    print(json.dumps({"err": err, "ms": start.elapsed_time(stop) / 50, "wall": time.perf_counter() - begin}))
    return int(not np.isfinite(err) or err > 1e-5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=8192)
    sys.exit(_self_test(parser.parse_args()))
