# task: tasks/agents_bn_fold_depthwise.py
# device: cuda
# mode: eval
# says: as an agent writes it: batch norm folded at the first forward in eval, versions of five tensors checked, train() overridden, torch operators in train mode, hasattr for lazy buffers
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_cpp = "at::Tensor dw3x3_hswish(at::Tensor x, at::Tensor w, at::Tensor b);"

_cu = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

// One block: one plane tile of 32 x 32 outputs, halo in shared memory.
constexpr int T = 32;

__global__ void __launch_bounds__(T * 8) dw3x3_kernel(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b,
                                                     float* __restrict__ y, int C, int H, int W) {
    __shared__ float tile[T + 2][T + 3];
    const int plane = blockIdx.z, c = plane % C;
    const int x0 = blockIdx.x * T - 1, y0 = blockIdx.y * T - 1;
    const float* in = x + (size_t)plane * H * W;
    for (int i = threadIdx.y * T + threadIdx.x; i < (T + 2) * (T + 2); i += T * 8) {
        const int r = i / (T + 2), q = i % (T + 2), gy = y0 + r, gx = x0 + q;
        tile[r][q] = gy >= 0 && gy < H && gx >= 0 && gx < W ? __ldg(in + (size_t)gy * W + gx) : 0.f;
    }
    float k[9];
    #pragma unroll
    for (int i = 0; i < 9; ++i) k[i] = __ldg(w + c * 9 + i);
    const float bias = __ldg(b + c);
    __syncthreads();
    for (int r = threadIdx.y; r < T; r += 8) {
        const int gy = blockIdx.y * T + r, gx = blockIdx.x * T + threadIdx.x;
        if (gy >= H || gx >= W) continue;
        float s = bias;
        #pragma unroll
        for (int dy = 0; dy < 3; ++dy)
            #pragma unroll
            for (int dx = 0; dx < 3; ++dx) s = fmaf(tile[r + dy][threadIdx.x + dx], k[dy * 3 + dx], s);
        float gate = s + 3.f;
        gate = gate < 0.f ? 0.f : gate > 6.f ? 6.f : gate;
        y[(size_t)plane * H * W + (size_t)gy * W + gx] = s * gate / 6.f;
    }
}

at::Tensor dw3x3_hswish(at::Tensor x, at::Tensor w, at::Tensor b) {
    const int B = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
    auto y = at::empty_like(x);
    dw3x3_kernel<<<dim3((W + T - 1) / T, (H + T - 1) / T, B * C), dim3(T, 8), 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), C, H, W);
    return y;
}
"""

_dw = load_inline(name="dw3x3_hswish", cpp_sources=_cpp, cuda_sources=_cu, functions=["dw3x3_hswish"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.act = nn.Hardswish()

    def train(self, mode=True):
        # The folded weights are only valid for inference.
        self._folded = None
        return super().train(mode)

    def _sources(self):
        return self.conv.weight, self.bn.weight, self.bn.bias, self.bn.running_mean, self.bn.running_var

    @torch.no_grad()
    def _fold(self):
        version = [(t.data_ptr(), t._version) for t in self._sources()]
        if getattr(self, "_folded", None) is None or self._folded[0] != version:
            scale = self.bn.weight * torch.rsqrt(self.bn.running_var + self.bn.eps)
            w = (self.conv.weight * scale.view(-1, 1, 1, 1)).reshape(-1, 9).contiguous()
            b = (self.bn.bias - self.bn.running_mean * scale).contiguous()
            self._folded = (version, w, b)
        return self._folded[1:]

    def forward(self, x):
        if self.training:
            return self.act(self.bn(self.conv(x)))
        w, b = self._fold()
        return _dw.dw3x3_hswish(x.contiguous(), w, b)
