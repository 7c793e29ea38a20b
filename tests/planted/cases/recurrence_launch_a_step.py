# fault: tiny launches
# class: launch
# diagnosis: tiny-launches
# method: batch-launches
# says: a kernel is launched for each of 128 steps of a recurrence whose states are independent

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(1024) * 0.5)

    def forward(self, x):
        state = torch.zeros_like(x[0])
        for step in range(x.shape[0]):
            state = torch.tanh(self.decay * state + x[step])
        return state


def get_inputs():
    return [torch.randn(128, 64, 1024)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// h = tanh(decay h + x[step]) for 128 steps of 64 x 1024 states, a thread a state
#define STATES 65536
// [good]
__global__ void steps(const float* __restrict__ x, const float* __restrict__ decay, float* __restrict__ out, int count) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    const float d = decay[i % 1024];
    float h = 0.0f;
    for (int s = 0; s < count; s += 16) {
        float v[16];  // loaded ahead: they do not wait for the state
#pragma unroll
        for (int k = 0; k < 16; k++) v[k] = x[(size_t)(s + k) * STATES + i];
#pragma unroll
        for (int k = 0; k < 16; k++) h = tanhf(d * h + v[k]);
    }
    out[i] = h;
}

extern "C" int run(const float* x, const float* decay, float* out, int count, cudaStream_t stream) {
    steps<<<STATES / 128, 128, 0, stream>>>(x, decay, out, count);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void one_step(const float* __restrict__ x, const float* __restrict__ decay, float* __restrict__ h, int first) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    h[i] = tanhf((first ? 0.0f : decay[i % 1024] * h[i]) + x[i]);
}

extern "C" int run(const float* x, const float* decay, float* out, int count, cudaStream_t stream) {
    for (int s = 0; s < count; s++) one_step<<<STATES / 128, 128, 0, stream>>>(x + (size_t)s * STATES, decay, out, s == 0);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(1024) * 0.5)

    def forward(self, x):
        out = torch.empty_like(x[0])
        launch("run", x, self.decay, out, x.shape[0])
        return out
