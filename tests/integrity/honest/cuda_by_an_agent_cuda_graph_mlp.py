# task: tasks/agents_cuda_graph_mlp.py
# device: cuda
# says: as an agent writes it: captures a CUDA graph in the first forward, static buffers, clone() of the result, recaptures if parameters move
"""Launch-bound MLP: own fused LayerNorm and SiLU kernels plus cuBLAS GEMMs, replayed as one CUDA graph.

The graph reads weights in place, so in-place weight updates are picked up; it is captured again if an input
shape or a parameter's storage changes.  The result is cloned out of the static buffer.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

_src = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void layernorm_kernel(const float* __restrict__ x, const float* __restrict__ g, const float* __restrict__ b, float* __restrict__ y, int n, float eps) {
    __shared__ float red[2][8];
    const float* row = x + (size_t)blockIdx.x * n;
    float s = 0.f;
    for (int i = threadIdx.x; i < n; i += 256) s += row[i];
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0) red[0][threadIdx.x / 32] = s;
    __syncthreads();
    s = 0.f;
    for (int w = 0; w < 8; ++w) s += red[0][w];
    const float mean = s / n;
    float q = 0.f;
    for (int i = threadIdx.x; i < n; i += 256) { const float d = row[i] - mean; q += d * d; }
    for (int o = 16; o; o >>= 1) q += __shfl_xor_sync(~0u, q, o);
    if (threadIdx.x % 32 == 0) red[1][threadIdx.x / 32] = q;
    __syncthreads();
    q = 0.f;
    for (int w = 0; w < 8; ++w) q += red[1][w];
    const float r = rsqrtf(q / n + eps);
    for (int i = threadIdx.x; i < n; i += 256) y[(size_t)blockIdx.x * n + i] = (row[i] - mean) * r * g[i] + b[i];
}

__global__ void silu_kernel(float* __restrict__ x, long n) {
    const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) { const float v = x[i]; x[i] = v / (1.f + expf(-v)); }
}

torch::Tensor layernorm(torch::Tensor x, torch::Tensor g, torch::Tensor b, double eps) {
    auto y = torch::empty_like(x);
    layernorm_kernel<<<x.size(0), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), g.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), x.size(1), eps);
    return y;
}

torch::Tensor silu_(torch::Tensor x) {
    const long n = x.numel();
    silu_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), n);
    return x;
}
"""

_k = load_inline(
    name="graph_mlp_kernels",
    cpp_sources="torch::Tensor layernorm(torch::Tensor x, torch::Tensor g, torch::Tensor b, double eps);\ntorch::Tensor silu_(torch::Tensor x);",
    cuda_sources=_src,
    functions=["layernorm", "silu_"],
)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 4 * d)
        self.fc2 = nn.Linear(4 * d, d)

    def forward(self, x):
        h = _k.layernorm(x, self.norm.weight, self.norm.bias, self.norm.eps)
        h = _k.silu_(F.linear(h, self.fc1.weight, self.fc1.bias))
        return x + F.linear(h, self.fc2.weight, self.fc2.bias)


class ModelNew(nn.Module):
    def __init__(self, d, depth):
        super().__init__()
        self.blocks = nn.ModuleList([Block(d) for _ in range(depth)])
        self._graph = None
        self._key = None
        self._static_in = None
        self._static_out = None

    def _run(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def _capture(self, x, key):
        self._static_in = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._run(self._static_in)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._static_out = self._run(self._static_in)
        self._graph, self._key = graph, key

    @torch.no_grad()
    def forward(self, x):
        if not x.is_cuda:
            raise RuntimeError("this module needs a CUDA device")
        key = (tuple(x.shape), x.dtype, x.device, tuple(p.data_ptr() for p in self.parameters()))
        if self._key != key:
            self._capture(x.contiguous(), key)
        self._static_in.copy_(x)
        self._graph.replay()
        return self._static_out.clone()
