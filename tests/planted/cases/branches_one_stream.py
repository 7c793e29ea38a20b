# fault: serialised streams
# class: occupancy | latency
# diagnosis: serialised-streams
# method: overlap-streams
# says: four independent products of 16 blocks each run one after another

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 2048, 128) / 45)

    def forward(self, x):
        return torch.cat([torch.relu(x @ self.w[0]), torch.tanh(x @ self.w[1]), torch.sigmoid(x @ self.w[2]), x @ self.w[3]], dim=1)


def get_inputs():
    return [torch.randn(128, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Four branches f(x w) of 128 x 2048 by 2048 x 128, each 16 blocks of 32 x 32 outputs; branch b fills columns 128 b of the result
template <int KIND>
__global__ void branch(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y) {
    __shared__ float xs[32][32], ws[32][32];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, column = blockIdx.x * 32 + tx;
    float sum = 0.0f;
    for (int k0 = 0; k0 < 2048; k0 += 32) {
        xs[ty][tx] = x[row * 2048 + k0 + tx];
        ws[ty][tx] = w[(k0 + ty) * 128 + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; k++) sum += xs[ty][k] * ws[k][tx];
        __syncthreads();
    }
    if (KIND == 0) sum = fmaxf(sum, 0.0f);
    if (KIND == 1) sum = tanhf(sum);
    if (KIND == 2) sum = 1.0f / (1.0f + expf(-sum));
    y[row * 512 + KIND * 128 + column] = sum;
}

extern "C" int run(const float* x, const float* w, float* y, cudaStream_t stream) {
    const dim3 grid(4, 4), block(32, 32);
    const int size = 2048 * 128;
// [good]
    static cudaStream_t side[3];
    static cudaEvent_t begin, ends[3];
    if (!begin) {
        cudaEventCreateWithFlags(&begin, cudaEventDisableTiming);
        for (int i = 0; i < 3; i++) {
            cudaStreamCreateWithFlags(&side[i], cudaStreamNonBlocking);
            cudaEventCreateWithFlags(&ends[i], cudaEventDisableTiming);
        }
    }
    cudaEventRecord(begin, stream);
    for (int i = 0; i < 3; i++) cudaStreamWaitEvent(side[i], begin, 0);
    branch<0><<<grid, block, 0, stream>>>(x, w, y);
    branch<1><<<grid, block, 0, side[0]>>>(x, w + size, y);
    branch<2><<<grid, block, 0, side[1]>>>(x, w + 2 * size, y);
    branch<3><<<grid, block, 0, side[2]>>>(x, w + 3 * size, y);
    for (int i = 0; i < 3; i++) {
        cudaEventRecord(ends[i], side[i]);
        cudaStreamWaitEvent(stream, ends[i], 0);
    }
// [faulty]
    branch<0><<<grid, block, 0, stream>>>(x, w, y);
    branch<1><<<grid, block, 0, stream>>>(x, w + size, y);
    branch<2><<<grid, block, 0, stream>>>(x, w + 2 * size, y);
    branch<3><<<grid, block, 0, stream>>>(x, w + 3 * size, y);
// [end]
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 2048, 128) / 45)

    def forward(self, x):
        y = torch.empty(128, 512, device=x.device)
        launch("run", x, self.w, y)
        return y
