# fault: needless synchronisation
# class: launch | latency
# diagnosis: needless-sync
# method: drop-sync
# says: the host waits for the device after each of 24 steps, although the stream orders them

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        for _ in range(24):
            p = F.pad(x[:, None], (1, 1, 1, 1))[:, 0]
            x = 0.25 * (p[:, 2:, 1:-1] + p[:, :-2, 1:-1] + p[:, 1:-1, 2:] + p[:, 1:-1, :-2])
        return x


def get_inputs():
    return [torch.randn(1, 1024, 1024)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// 24 Jacobi steps on n x n with zeros outside; x -> a -> b -> a ... -> b
__global__ void step(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;
    const int at = i * n + j;
    const float up = i > 0 ? x[at - n] : 0.0f, down = i < n - 1 ? x[at + n] : 0.0f;
    const float left = j > 0 ? x[at - 1] : 0.0f, right = j < n - 1 ? x[at + 1] : 0.0f;
    y[at] = 0.25f * (((down + up) + right) + left);
}

extern "C" int run(const float* x, float* a, float* b, int n, int steps, cudaStream_t stream) {
    const dim3 grid(n / 32, n / 8), block(32, 8);
    for (int s = 0; s < steps; s++) {
        step<<<grid, block, 0, stream>>>(s == 0 ? x : s % 2 ? a : b, s % 2 ? b : a, n);
// [good]
// [faulty]
        cudaDeviceSynchronize();
// [end]
    }
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        a, b = torch.empty_like(x), torch.empty_like(x)
        launch("run", x, a, b, x.shape[1], 24)
        return b
