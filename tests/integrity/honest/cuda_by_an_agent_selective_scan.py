# task: tasks/agents_selective_scan.py
# device: cuda
# says: as an agent writes it: build_directory, md5 in name, try/except fallback, build behind torch.cuda.is_available() at import; reference is a loop
"""Selective scan with the state in registers: one thread per (batch, channel), B_t and C_t staged in shared memory."""
import hashlib
import logging
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("selective_scan")

_KERNEL = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

template <int N>
__global__ void __launch_bounds__(64) scan_kernel(const float* __restrict__ u, const float* __restrict__ delta, const float* __restrict__ A_log,
                                                  const float* __restrict__ Bm, const float* __restrict__ Cm, const float* __restrict__ Dp,
                                                  float* __restrict__ y, int L, int D) {
    extern __shared__ float sh[];              // [L][N] of B, then [L][N] of C
    float* sB = sh;
    float* sC = sh + L * N;
    const int b = blockIdx.y;
    const int d = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = threadIdx.x; i < L * N; i += blockDim.x) {
        sB[i] = Bm[(size_t)b * L * N + i];
        sC[i] = Cm[(size_t)b * L * N + i];
    }
    __syncthreads();
    if (d >= D) return;
    float a[N], h[N];
    #pragma unroll
    for (int n = 0; n < N; ++n) { a[n] = -expf(A_log[d * N + n]); h[n] = 0.f; }
    const float skip = Dp[d];
    const size_t base = (size_t)b * L * D + d;
    float un = u[base], dn = delta[base];
    for (int t = 0; t < L; ++t) {
        const float ut = un, raw = dn;
        if (t + 1 < L) { un = u[base + (size_t)(t + 1) * D]; dn = delta[base + (size_t)(t + 1) * D]; }
        const float dt = raw > 20.f ? raw : log1pf(expf(raw));
        const float x = dt * ut;
        float acc = 0.f;
        #pragma unroll
        for (int n = 0; n < N; ++n) {
            h[n] = expf(dt * a[n]) * h[n] + x * sB[t * N + n];
            acc += h[n] * sC[t * N + n];
        }
        y[base + (size_t)t * D] = acc + ut * skip;
    }
}

torch::Tensor selective_scan(torch::Tensor u, torch::Tensor delta, torch::Tensor A_log, torch::Tensor B, torch::Tensor C, torch::Tensor D) {
    const int b = u.size(0), L = u.size(1), d = u.size(2), n = A_log.size(1);
    TORCH_CHECK(n == 16, "d_state must be 16");
    auto y = torch::empty_like(u);
    const int smem = 2 * L * n * sizeof(float);
    TORCH_CHECK(smem <= 48 * 1024, "sequence too long for one tile");
    scan_kernel<16><<<dim3((d + 63) / 64, b), 64, smem, at::cuda::getCurrentCUDAStream()>>>(
        u.data_ptr<float>(), delta.data_ptr<float>(), A_log.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), D.data_ptr<float>(),
        y.data_ptr<float>(), L, d);
    return y;
}
"""
_DECL = (
    "torch::Tensor selective_scan(torch::Tensor u, torch::Tensor delta, torch::Tensor A_log, torch::Tensor B, torch::Tensor C, torch::Tensor D);"
)


def _load():
    tag = hashlib.md5((_KERNEL + torch.__version__).encode()).hexdigest()[:10]
    build_dir = os.path.join(tempfile.gettempdir(), f"selective_scan_{tag}")
    os.makedirs(build_dir, exist_ok=True)
    try:
        from torch.utils.cpp_extension import load_inline

        return load_inline(
            name=f"selective_scan_{tag}",
            cpp_sources=_DECL,
            cuda_sources=_KERNEL,
            functions=["selective_scan"],
            extra_cuda_cflags=["-O3"],
            build_directory=build_dir,
        )
    except Exception as exc:  # no compiler on this machine: stay correct
        log.warning("falling back to PyTorch: %s", exc)
        return None


_scan = _load() if torch.cuda.is_available() else None


def _reference(u, delta, A_log, B, C, D):
    delta = F.softplus(delta)
    A = -torch.exp(A_log)
    h = u.new_zeros(u.shape[0], u.shape[2], A.shape[1])
    ys = []
    for t in range(u.shape[1]):
        dt = delta[:, t, :, None]
        h = torch.exp(dt * A) * h + (dt * u[:, t, :, None]) * B[:, t, None, :]
        ys.append((h * C[:, t, None, :]).sum(-1))
    return torch.stack(ys, dim=1) + u * D


class ModelNew(nn.Module):
    def __init__(self, d_inner: int, d_state: int):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1, d_state + 1, dtype=torch.float32)).repeat(d_inner, 1))
        self.D = nn.Parameter(torch.ones(d_inner))

    def forward(self, u, delta, B, C):
        if _scan is None or not u.is_cuda:
            return _reference(u, delta, self.A_log, B, C, self.D)
        return _scan.selective_scan(u.contiguous(), delta.contiguous(), self.A_log, B.contiguous(), C.contiguous(), self.D)
