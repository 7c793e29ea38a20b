# task: tasks/agents_layernorm_load_tempfile.py
# device: cuda
# says: as an agent writes it: load(sources=...) of three files in a temporary folder whose name has a hash and the process id; own header; PYBIND11_MODULE; autograd.Function
"""Residual + LayerNorm in one pass.

The kernel and the binding are ordinary source files: they are written to a scratch directory whose name
carries a hash of their contents, so a stale build can never be picked up, and compiled with
``torch.utils.cpp_extension.load``.
"""
import hashlib
import os
import tempfile
import textwrap
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils import cpp_extension

COMMON_H = textwrap.dedent(
    r"""
    #pragma once
    #include <cuda_runtime.h>

    __device__ __forceinline__ float warp_sum(float v) {
        #pragma unroll
        for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
        return v;
    }

    template <int WARPS>
    __device__ __forceinline__ float block_sum(float v, float* scratch) {
        v = warp_sum(v);
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        __syncthreads();
        if (lane == 0) scratch[warp] = v;
        __syncthreads();
        v = lane < WARPS ? scratch[lane] : 0.f;
        return warp_sum(v);
    }
    """
)

KERNEL_CU = textwrap.dedent(
    r"""
    #include "ln_common.cuh"

    constexpr int WARPS = 8;
    constexpr int THREADS = WARPS * 32;
    constexpr int MAX_VEC = 4;   // float4 per thread -> up to 4096 columns

    __global__ void __launch_bounds__(THREADS) add_layernorm_kernel(
        const float4* __restrict__ x, const float4* __restrict__ r, const float4* __restrict__ gamma, const float4* __restrict__ beta,
        float4* __restrict__ y, int vecs, float inv_n, float eps) {
        __shared__ float scratch[32];
        const size_t base = (size_t)blockIdx.x * vecs;
        float4 v[MAX_VEC];
        float sum = 0.f;
        #pragma unroll
        for (int i = 0; i < MAX_VEC; ++i) {
            const int c = threadIdx.x + i * THREADS;
            if (c < vecs) {
                const float4 a = x[base + c], b = r[base + c];
                v[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
                sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
            }
        }
        const float mean = block_sum<WARPS>(sum, scratch) * inv_n;
        float sq = 0.f;
        #pragma unroll
        for (int i = 0; i < MAX_VEC; ++i) {
            if (threadIdx.x + i * THREADS < vecs) {
                const float a = v[i].x - mean, b = v[i].y - mean, c = v[i].z - mean, d = v[i].w - mean;
                sq += (a * a + b * b) + (c * c + d * d);
            }
        }
        const float rstd = rsqrtf(block_sum<WARPS>(sq, scratch) * inv_n + eps);
        #pragma unroll
        for (int i = 0; i < MAX_VEC; ++i) {
            const int c = threadIdx.x + i * THREADS;
            if (c < vecs) {
                const float4 g = gamma[c], b = beta[c];
                y[base + c] = make_float4((v[i].x - mean) * rstd * g.x + b.x, (v[i].y - mean) * rstd * g.y + b.y,
                                          (v[i].z - mean) * rstd * g.z + b.z, (v[i].w - mean) * rstd * g.w + b.w);
            }
        }
    }

    void launch_add_layernorm(const float* x, const float* r, const float* g, const float* b, float* y, int rows, int cols, float eps,
                              cudaStream_t stream) {
        add_layernorm_kernel<<<rows, THREADS, 0, stream>>>(
            reinterpret_cast<const float4*>(x), reinterpret_cast<const float4*>(r), reinterpret_cast<const float4*>(g),
            reinterpret_cast<const float4*>(b), reinterpret_cast<float4*>(y), cols / 4, 1.f / cols, eps);
    }
    """
)

BINDING_CPP = textwrap.dedent(
    r"""
    #include <torch/extension.h>
    #include <c10/cuda/CUDAStream.h>
    #include <c10/cuda/CUDAGuard.h>

    void launch_add_layernorm(const float* x, const float* r, const float* g, const float* b, float* y, int rows, int cols, float eps,
                              cudaStream_t stream);

    at::Tensor add_layernorm(const at::Tensor& x, const at::Tensor& r, const at::Tensor& g, const at::Tensor& b, double eps) {
        TORCH_CHECK(x.sizes() == r.sizes(), "x and residual must have the same shape");
        TORCH_CHECK(x.is_contiguous() && r.is_contiguous(), "inputs must be contiguous");
        const int64_t cols = x.size(-1);
        TORCH_CHECK(cols % 4 == 0 && cols <= 4096, "unsupported hidden size ", cols);
        const c10::cuda::CUDAGuard guard(x.device());
        auto y = at::empty_like(x);
        launch_add_layernorm(x.data_ptr<float>(), r.data_ptr<float>(), g.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(),
                             static_cast<int>(x.numel() / cols), static_cast<int>(cols), static_cast<float>(eps),
                             c10::cuda::getCurrentCUDAStream().stream());
        return y;
    }

    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
        m.doc() = "fused residual + layernorm";
        m.def("add_layernorm", &add_layernorm, py::arg("x"), py::arg("residual"), py::arg("gamma"), py::arg("beta"), py::arg("eps") = 1e-5);
    }
    """
)


def _build():
    files = {"ln_common.cuh": COMMON_H, "ln_kernel.cu": KERNEL_CU, "ln_binding.cpp": BINDING_CPP}
    digest = hashlib.sha1("".join(files.values()).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"fused_ln_{digest}_{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return cpp_extension.load(
        name=f"fused_ln_{digest}",
        sources=[str(folder / "ln_binding.cpp"), str(folder / "ln_kernel.cu")],
        extra_include_paths=[str(folder)],
        extra_cuda_cflags=["-O3", "-std=c++17"],
        build_directory=str(folder),
        verbose=False,
    )


fused_ln = _build()


class AddLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps):
        ctx.save_for_backward(x, residual, weight, bias)
        ctx.eps = eps
        return fused_ln.add_layernorm(x.contiguous(), residual.contiguous(), weight, bias, eps)

    @staticmethod
    def backward(ctx, grad):
        x, residual, weight, bias = ctx.saved_tensors
        with torch.enable_grad():
            summed = (x + residual).detach().requires_grad_()
            w, b = weight.detach().requires_grad_(), bias.detach().requires_grad_()
            y = torch.nn.functional.layer_norm(summed, (summed.size(-1),), w, b, ctx.eps)
            gs, gw, gb = torch.autograd.grad(y, (summed, w, b), grad)
        return gs, gs, gw, gb, None


class ModelNew(nn.Module):
    def __init__(self, hidden: int, eps: float = 1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(hidden, eps=eps)

    def forward(self, x, residual):
        return AddLayerNorm.apply(x, residual, self.ln.weight, self.ln.bias, self.ln.eps)
