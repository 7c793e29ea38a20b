# task: tasks/agents_cumsum_cooperative.py
# device: cuda
# says: as an agent writes it: cooperative launch, grid.sync, cg::reduce and inclusive_scan; library fallback branch for other dims
"""Row-wise inclusive scan in a single cooperative launch.

Phase 1 reduces tiles of 4096 elements, a grid barrier publishes the tile sums, phase 2 scans the tiles
again (mostly out of L2) on top of the exclusive prefix of its row's tile sums.
"""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

constexpr int THREADS = 512, PER_THREAD = 8, TILE = THREADS * PER_THREAD, WARPS = THREADS / 32;

__global__ void __launch_bounds__(THREADS) cumsum_kernel(const float* __restrict__ x, float* __restrict__ y, float* __restrict__ sums,
                                                         int cols, int tiles_per_row, int tiles) {
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    __shared__ float partial[WARPS];

    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int row = t / tiles_per_row, tile = t % tiles_per_row;
        const float* src = x + (size_t)row * cols + tile * TILE;
        const int n = min(TILE, cols - tile * TILE);
        float s = 0.f;
        #pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) {
            const int c = threadIdx.x + i * THREADS;
            if (c < n) s += src[c];
        }
        s = cg::reduce(warp, s, cg::plus<float>());
        if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = s;
        block.sync();
        if (warp.meta_group_rank() == 0) {
            float v = warp.thread_rank() < WARPS ? partial[warp.thread_rank()] : 0.f;
            v = cg::reduce(warp, v, cg::plus<float>());
            if (warp.thread_rank() == 0) sums[t] = v;
        }
        block.sync();
    }

    grid.sync();

    __shared__ float offset;
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int row = t / tiles_per_row, tile = t % tiles_per_row;
        const size_t base = (size_t)row * cols + tile * TILE;
        const int n = min(TILE, cols - tile * TILE);
        if (warp.meta_group_rank() == 0) {
            float before = 0.f;
            for (int i = warp.thread_rank(); i < tile; i += 32) before += sums[row * tiles_per_row + i];
            before = cg::reduce(warp, before, cg::plus<float>());
            if (warp.thread_rank() == 0) offset = before;
        }
        float v[PER_THREAD];
        const int first = threadIdx.x * PER_THREAD;
        if (first + PER_THREAD <= n && ((base + first) & 3) == 0) {
            const float4 a = *reinterpret_cast<const float4*>(x + base + first);
            const float4 b = *reinterpret_cast<const float4*>(x + base + first + 4);
            v[0] = a.x; v[1] = a.y; v[2] = a.z; v[3] = a.w; v[4] = b.x; v[5] = b.y; v[6] = b.z; v[7] = b.w;
        } else {
            #pragma unroll
            for (int i = 0; i < PER_THREAD; ++i) v[i] = first + i < n ? x[base + first + i] : 0.f;
        }
        #pragma unroll
        for (int i = 1; i < PER_THREAD; ++i) v[i] += v[i - 1];
        const float inclusive = cg::inclusive_scan(warp, v[PER_THREAD - 1], cg::plus<float>());
        if (warp.thread_rank() == 31) partial[warp.meta_group_rank()] = inclusive;
        block.sync();
        float prefix = offset;
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) prefix += w < (int)warp.meta_group_rank() ? partial[w] : 0.f;
        const float left = __shfl_up_sync(0xffffffffu, inclusive, 1);
        prefix += warp.thread_rank() ? left : 0.f;
        #pragma unroll
        for (int i = 0; i < PER_THREAD; ++i)
            if (first + i < n) y[base + first + i] = prefix + v[i];
        block.sync();
    }
}

torch::Tensor cumsum_rows(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 2 && x.is_contiguous() && x.scalar_type() == torch::kFloat);
    int rows = x.size(0), cols = x.size(1);
    int per_row = (cols + TILE - 1) / TILE, tiles = rows * per_row;
    auto y = torch::empty_like(x);
    auto sums = torch::empty({tiles}, x.options());
    static int resident = 0;
    if (!resident) {
        int blocks = 0;
        C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, cumsum_kernel, THREADS, 0));
        resident = blocks * at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    }
    const float* xp = x.data_ptr<float>();
    float* yp = y.data_ptr<float>();
    float* sp = sums.data_ptr<float>();
    void* args[] = {&xp, &yp, &sp, &cols, &per_row, &tiles};
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel((void*)cumsum_kernel, dim3(std::min(resident, tiles)), dim3(THREADS), args, 0,
                                               at::cuda::getCurrentCUDAStream().stream()));
    return y;
}
"""

mod = load_inline(
    name="coop_cumsum",
    cpp_sources=["torch::Tensor cumsum_rows(torch::Tensor x);"],
    cuda_sources=[source],
    functions=["cumsum_rows"],
    with_cuda=True,
    extra_cuda_cflags=["-O3", "-std=c++17"],
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        dim = self.dim % x.dim()
        if x.dim() != 2 or dim != 1:
            return torch.cumsum(x, dim=self.dim)
        return mod.cumsum_rows(x.contiguous())
