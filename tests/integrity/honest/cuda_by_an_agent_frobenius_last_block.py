# task: tasks/agents_frobenius_last_block.py
# device: cuda
# says: as an agent writes it: last-block reduction with a ticket that resets itself, workspace kept
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# "threadFenceReduction" pattern: the last block to finish adds up the partial sums, in a fixed order, and
# resets the ticket so that the workspace can be reused by the next call.
_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int THREADS = 256;

__device__ double block_reduce(double v) {
    __shared__ double red[THREADS / 32];
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.0;
    for (int w = 0; w < THREADS / 32; ++w) v += red[w];
    return v;
}

__global__ void __launch_bounds__(THREADS) sumsq_kernel(const float4* __restrict__ x, long n4, double* partial, unsigned int* ticket, float* inv) {
    __shared__ bool last;
    double total = 0.0;
    for (long i = blockIdx.x * (long)THREADS + threadIdx.x; i < n4; i += (long)gridDim.x * THREADS) {
        const float4 v = x[i];
        total += (double)(v.x * v.x + v.y * v.y) + (double)(v.z * v.z + v.w * v.w);
    }
    total = block_reduce(total);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = total;
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    double s = 0.0;
    for (int i = threadIdx.x; i < gridDim.x; i += THREADS) s += ((volatile double*)partial)[i];
    s = block_reduce(s);
    if (threadIdx.x == 0) {
        *inv = static_cast<float>(sqrt(s));
        *ticket = 0;
    }
}

__global__ void __launch_bounds__(THREADS) scale_kernel(const float4* __restrict__ x, float4* __restrict__ y, long n4, const float* __restrict__ norm) {
    const float d = *norm;
    for (long i = blockIdx.x * (long)THREADS + threadIdx.x; i < n4; i += (long)gridDim.x * THREADS) {
        const float4 v = x[i];
        y[i] = make_float4(v.x / d, v.y / d, v.z / d, v.w / d);
    }
}

torch::Tensor fro_normalize(torch::Tensor x, torch::Tensor partial, torch::Tensor ticket, torch::Tensor norm) {
    TORCH_CHECK(x.is_contiguous() && x.numel() % 4 == 0);
    auto y = torch::empty_like(x);
    const long n4 = x.numel() / 4;
    auto stream = at::cuda::getCurrentCUDAStream();
    const int blocks = partial.numel();
    sumsq_kernel<<<blocks, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()), n4, partial.data_ptr<double>(),
                                                 reinterpret_cast<unsigned int*>(ticket.data_ptr<int>()), norm.data_ptr<float>());
    scale_kernel<<<blocks * 2, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), n4,
                                                     norm.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

fro = load_inline(
    name="fro_norm_last_block",
    cpp_sources="torch::Tensor fro_normalize(torch::Tensor x, torch::Tensor partial, torch::Tensor ticket, torch::Tensor norm);",
    cuda_sources=_SOURCE,
    functions=["fro_normalize"],
    verbose=True,
)


class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()
        self._ws = {}

    def _workspace(self, device):
        ws = self._ws.get(device)
        if ws is None:
            blocks = 4 * torch.cuda.get_device_properties(device).multi_processor_count
            ws = (
                torch.empty(blocks, dtype=torch.float64, device=device),
                torch.zeros(1, dtype=torch.int32, device=device),
                torch.empty(1, dtype=torch.float32, device=device),
            )
            self._ws[device] = ws
        return ws

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return fro.fro_normalize(x.contiguous(), *self._workspace(x.device))
