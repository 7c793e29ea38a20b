# fault: host copies
# class: latency | launch
# diagnosis: host-copies
# method: keep-on-device
# says: a constant 16 MB table is copied from the host in every call

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.sin(torch.arange(4194304, dtype=torch.float32).reshape(2048, 2048) * 0.001))

    def forward(self, x):
        return x + self.table


def get_inputs():
    return [torch.randn(4, 2048, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = x + table, for each of the batch
__global__ void add(const float4* __restrict__ x, const float4* __restrict__ table, float4* __restrict__ y, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    const size_t at = (size_t)blockIdx.y * n + i;
    const float4 v = x[at], w = table[i];
    y[at] = make_float4(v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w);
}

extern "C" int run(const float4* x, const float4* table, float4* y, int batch, int n, cudaStream_t stream) {
    add<<<dim3(n / 1024, batch), 256, 0, stream>>>(x, table, y, n / 4);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.sin(torch.arange(4194304, dtype=torch.float32).reshape(2048, 2048) * 0.001))
        self.at_host = None

    def forward(self, x):
        y = torch.empty_like(x)
        # [good]
        table = self.table
        # [faulty]
        if self.at_host is None:
            self.at_host = self.table.cpu()
        table = self.at_host.to(x.device)
        # [end]
        launch("run", x, table, y, x.shape[0], table.numel())
        return y
