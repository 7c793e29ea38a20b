# fault: serialised streams
# class: occupancy | latency
# diagnosis: serialised-streams
# method: overlap-streams
# says: the sums of six inputs with twelve rows each run one after another, twelve blocks at a time

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b, c, d, e, f):
        return a.square().sum(1), b.abs().sum(1), torch.exp(c).sum(1), torch.relu(d).sum(1), torch.sigmoid(e).sum(1), torch.tanh(f).sum(1)


def get_inputs():
    return [torch.randn(12, 524288) for _ in range(6)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[row] = sum of f(x) over a row, a block of 1024 threads a row
template <int KIND>
__global__ void __launch_bounds__(1024) sums(const float4* __restrict__ x, float* __restrict__ out, int n) {
    const float4* row = x + (size_t)blockIdx.x * n;
    float sum = 0.0f;
#pragma unroll 2
    for (int i = threadIdx.x; i < n; i += 1024) {
        const float4 q = row[i];
        const float v[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (KIND == 0) sum += v[k] * v[k];
            if (KIND == 1) sum += fabsf(v[k]);
            if (KIND == 2) sum += expf(v[k]);
            if (KIND == 3) sum += fmaxf(v[k], 0.0f);
            if (KIND == 4) sum += 1.0f / (1.0f + expf(-v[k]));
            if (KIND == 5) sum += tanhf(v[k]);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" int run(const float4* a, const float4* b, const float4* c, const float4* d, const float4* e, const float4* f, float* o0, float* o1,
                   float* o2, float* o3, float* o4, float* o5, int rows, int length, cudaStream_t stream) {
    const int n = length / 4;
// [good]
    static cudaStream_t side[5];
    static cudaEvent_t begin, ends[5];
    if (!begin) {
        cudaEventCreateWithFlags(&begin, cudaEventDisableTiming);
        for (int i = 0; i < 5; i++) {
            cudaStreamCreateWithFlags(&side[i], cudaStreamNonBlocking);
            cudaEventCreateWithFlags(&ends[i], cudaEventDisableTiming);
        }
    }
    cudaEventRecord(begin, stream);
    for (int i = 0; i < 5; i++) cudaStreamWaitEvent(side[i], begin, 0);
    sums<0><<<rows, 1024, 0, stream>>>(a, o0, n);
    sums<1><<<rows, 1024, 0, side[0]>>>(b, o1, n);
    sums<2><<<rows, 1024, 0, side[1]>>>(c, o2, n);
    sums<3><<<rows, 1024, 0, side[2]>>>(d, o3, n);
    sums<4><<<rows, 1024, 0, side[3]>>>(e, o4, n);
    sums<5><<<rows, 1024, 0, side[4]>>>(f, o5, n);
    for (int i = 0; i < 5; i++) {
        cudaEventRecord(ends[i], side[i]);
        cudaStreamWaitEvent(stream, ends[i], 0);
    }
// [faulty]
    sums<0><<<rows, 1024, 0, stream>>>(a, o0, n);
    sums<1><<<rows, 1024, 0, stream>>>(b, o1, n);
    sums<2><<<rows, 1024, 0, stream>>>(c, o2, n);
    sums<3><<<rows, 1024, 0, stream>>>(d, o3, n);
    sums<4><<<rows, 1024, 0, stream>>>(e, o4, n);
    sums<5><<<rows, 1024, 0, stream>>>(f, o5, n);
// [end]
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, *inputs):
        rows, length = inputs[0].shape
        sums = tuple(torch.empty(rows, device=inputs[0].device) for _ in inputs)
        launch("run", *inputs, *sums, rows, length)
        return sums
