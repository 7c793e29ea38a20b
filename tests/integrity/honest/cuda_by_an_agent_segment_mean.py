# task: tasks/agents_segment_mean.py
# device: cuda
# says: as an agent writes it: cudaMemsetAsync of a workspace in each call, workspaces by device in a dict, _apply overridden, counting sort on the device, int64 indices narrowed
"""Segment mean by a counting sort: count -> scan -> scatter of node ids -> one block a segment sums its rows (no float atomics)."""
from collections import defaultdict

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cub/cub.cuh>

__global__ void count_kernel(const int64_t* __restrict__ segment, int* __restrict__ counts, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(counts + (int)segment[i], 1);
}

__global__ void __launch_bounds__(1024) scan_kernel(const int* __restrict__ counts, int* __restrict__ starts, int* __restrict__ cursor, int g) {
    using Scan = cub::BlockScan<int, 1024>;
    __shared__ typename Scan::TempStorage temp;
    __shared__ int carry;
    if (threadIdx.x == 0) carry = 0;
    __syncthreads();
    for (int base = 0; base < g; base += 1024) {
        const int i = base + threadIdx.x, v = i < g ? counts[i] : 0;
        int before, total;
        Scan(temp).ExclusiveSum(v, before, total);
        if (i < g) { starts[i] = carry + before; cursor[i] = carry + before; }
        __syncthreads();
        if (threadIdx.x == 0) carry += total;
        __syncthreads();
    }
}

__global__ void place_kernel(const int64_t* __restrict__ segment, int* __restrict__ cursor, int* __restrict__ order, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) order[atomicAdd(cursor + (int)segment[i], 1)] = i;
}

__global__ void mean_kernel(const float4* __restrict__ x, const int* __restrict__ starts, const int* __restrict__ counts, const int* __restrict__ order,
                            const float4* __restrict__ scale, float4* __restrict__ y, int dim4) {
    extern __shared__ float4 part[];                // blockDim.y x dim4
    const int s = blockIdx.x, n = counts[s], first = starts[s];
    float4 a = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int i = threadIdx.y; i < n; i += blockDim.y) {
        const float4 v = __ldcs(x + (size_t)order[first + i] * dim4 + threadIdx.x);
        a.x += v.x; a.y += v.y; a.z += v.z; a.w += v.w;
    }
    part[threadIdx.y * dim4 + threadIdx.x] = a;
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int k = 1; k < blockDim.y; ++k) {
            const float4 v = part[k * dim4 + threadIdx.x];
            a.x += v.x; a.y += v.y; a.z += v.z; a.w += v.w;
        }
        const float d = (float)max(n, 1);
        const float4 g = scale[threadIdx.x];
        y[(size_t)s * dim4 + threadIdx.x] = make_float4(a.x / d * g.x, a.y / d * g.y, a.z / d * g.z, a.w / d * g.w);
    }
}

void segment_mean(torch::Tensor x, torch::Tensor segment, torch::Tensor scale, torch::Tensor work, torch::Tensor y) {
    const int n = x.size(0), dim4 = x.size(1) / 4, g = y.size(0);
    TORCH_CHECK(work.numel() >= 3 * g + n && x.size(1) % 4 == 0 && dim4 <= 128, "bad workspace or width");
    auto stream = at::cuda::getCurrentCUDAStream().stream();
    int* counts = work.data_ptr<int>();
    int *starts = counts + g, *cursor = counts + 2 * g, *order = counts + 3 * g;
    C10_CUDA_CHECK(cudaMemsetAsync(counts, 0, g * sizeof(int), stream));
    count_kernel<<<256, 256, 0, stream>>>(segment.data_ptr<int64_t>(), counts, n);
    scan_kernel<<<1, 1024, 0, stream>>>(counts, starts, cursor, g);
    place_kernel<<<256, 256, 0, stream>>>(segment.data_ptr<int64_t>(), cursor, order, n);
    mean_kernel<<<g, dim3(dim4, 8), 8 * dim4 * sizeof(float4), stream>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()), starts, counts, order,
        reinterpret_cast<const float4*>(scale.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), dim4);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""

_ext = load_inline(
    name="segment_mean_sorted",
    cpp_sources="void segment_mean(torch::Tensor x, torch::Tensor segment, torch::Tensor scale, torch::Tensor work, torch::Tensor y);",
    cuda_sources=CUDA,
    functions=["segment_mean"],
)


class ModelNew(nn.Module):
    def __init__(self, graphs, dim):
        super().__init__()
        self.graphs = graphs
        self.scale = nn.Parameter(torch.rand(dim) + 0.5)
        self._work = defaultdict(dict)

    def _apply(self, fn, *args, **kwargs):
        self._work.clear()           # a move to another device or type invalidates the workspaces
        return super()._apply(fn, *args, **kwargs)

    def _workspace(self, x):
        work = self._work[x.device]
        if x.shape[0] not in work:
            work[x.shape[0]] = torch.empty(3 * self.graphs + x.shape[0], dtype=torch.int32, device=x.device)
        return work[x.shape[0]]

    def forward(self, x, segment):
        assert segment.dtype == torch.int64, f"expected int64 segments, got {segment.dtype}"
        out = x.new_empty((self.graphs, x.shape[1]))
        _ext.segment_mean(x.contiguous(), segment.contiguous(), self.scale, self._workspace(x), out)
        return out
