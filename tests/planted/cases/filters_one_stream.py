# fault: serialised streams
# class: occupancy | latency
# diagnosis: serialised-streams
# method: overlap-streams
# says: four recursive filters run one after another, each with only four warps because time cannot be split

import torch
from torch import nn


class Model(nn.Module):
    def filtered(self, x, decay):
        out, state = [], torch.zeros_like(x[0])
        for step in range(x.shape[0]):
            state = decay * state + x[step]
            out.append(state)
        return torch.stack(out)

    def forward(self, x):
        a, b = self.filtered(x, 0.5), self.filtered(torch.tanh(x), 0.25)
        c, d = self.filtered(x.abs(), 0.125), self.filtered(-x, 0.75)
        return a, b, c, d


def get_inputs():
    return [torch.randn(256, 128)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[t] = decay y[t - 1] + f(x[t]) over 256 steps of 128 channels, a thread a channel, rounded after the product as PyTorch does
template <int KIND>
__global__ void filter(const float* __restrict__ x, float* __restrict__ y, int steps) {
    const float decay = KIND == 0 ? 0.5f : KIND == 1 ? 0.25f : KIND == 2 ? 0.125f : 0.75f;
    float state = 0.0f;
#pragma unroll 2
    for (int t = 0; t < steps; t++) {
        const float v = x[t * 128 + threadIdx.x];
        state = __fadd_rn(__fmul_rn(decay, state), KIND == 0 ? v : KIND == 1 ? tanhf(v) : KIND == 2 ? fabsf(v) : -v);
        y[t * 128 + threadIdx.x] = state;
    }
}

extern "C" int run(const float* x, float* a, float* b, float* c, float* d, int steps, cudaStream_t stream) {
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
    filter<0><<<1, 128, 0, stream>>>(x, a, steps);
    filter<1><<<1, 128, 0, side[0]>>>(x, b, steps);
    filter<2><<<1, 128, 0, side[1]>>>(x, c, steps);
    filter<3><<<1, 128, 0, side[2]>>>(x, d, steps);
    for (int i = 0; i < 3; i++) {
        cudaEventRecord(ends[i], side[i]);
        cudaStreamWaitEvent(stream, ends[i], 0);
    }
// [faulty]
    filter<0><<<1, 128, 0, stream>>>(x, a, steps);
    filter<1><<<1, 128, 0, stream>>>(x, b, steps);
    filter<2><<<1, 128, 0, stream>>>(x, c, steps);
    filter<3><<<1, 128, 0, stream>>>(x, d, steps);
// [end]
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        a, b, c, d = (torch.empty_like(x) for _ in range(4))
        launch("run", x, a, b, c, d, x.shape[0])
        return a, b, c, d
