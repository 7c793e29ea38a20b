# task: tasks/agents_cutlass_linear_relu.py
# device: cuda
# precision: fp16
# call: 60
# says: as an agent writes it: CUTLASS 2.x device::Gemm, searches for the headers in several places
import os
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


def _find_cutlass():
    """Locate the CUTLASS headers: environment, then the usual install prefixes, then the nvidia-cutlass wheel."""
    candidates = [os.environ.get("CUTLASS_PATH"), os.environ.get("CUTLASS_HOME"), "/usr/local/cutlass", "/opt/cutlass", "/workspace/cutlass"]
    try:
        import cutlass_library

        candidates.append(str(Path(cutlass_library.__file__).parent / "source"))
    except ImportError:
        pass
    for root in candidates:
        if root and (Path(root) / "include" / "cutlass" / "cutlass.h").is_file():
            return [str(Path(root) / "include"), str(Path(root) / "tools" / "util" / "include")]
    return []


cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/epilogue/thread/linear_combination_relu.h>

using Epilogue = cutlass::epilogue::thread::LinearCombinationRelu<
    cutlass::half_t, 128 / cutlass::sizeof_bits<cutlass::half_t>::value, float, float,
    cutlass::epilogue::thread::ScaleType::NoBetaScaling>;

using Gemm = cutlass::gemm::device::Gemm<
    cutlass::half_t, cutlass::layout::RowMajor,
    cutlass::half_t, cutlass::layout::ColumnMajor,
    cutlass::half_t, cutlass::layout::RowMajor,
    float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<128, 256, 32>, cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<16, 8, 16>,
    Epilogue, cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, 3>;

torch::Tensor linear_relu(torch::Tensor x, torch::Tensor w, torch::Tensor bias) {
    const int M = x.size(0), K = x.size(1), N = w.size(0);
    auto y = torch::empty({M, N}, x.options());
    using E = cutlass::half_t;
    typename Gemm::Arguments args{
        {M, N, K},
        {reinterpret_cast<E*>(x.data_ptr()), K},
        {reinterpret_cast<E*>(w.data_ptr()), K},
        {reinterpret_cast<E*>(bias.data_ptr()), 0},       // broadcast over rows
        {reinterpret_cast<E*>(y.data_ptr()), N},
        {1.0f}};
    Gemm gemm;
    auto stream = at::cuda::getCurrentCUDAStream();
    TORCH_CHECK(gemm.can_implement(args) == cutlass::Status::kSuccess, "CUTLASS cannot implement this problem");
    TORCH_CHECK(gemm.initialize(args, nullptr, stream) == cutlass::Status::kSuccess, "CUTLASS initialisation failed");
    TORCH_CHECK(gemm(stream) == cutlass::Status::kSuccess, "CUTLASS launch failed");
    return y;
}
"""

_mod = load_inline(
    name="cutlass_linear_relu",
    cpp_sources="torch::Tensor linear_relu(torch::Tensor x, torch::Tensor w, torch::Tensor bias);",
    cuda_sources=cuda_source,
    functions=["linear_relu"],
    extra_include_paths=_find_cutlass(),
    extra_cuda_cflags=["-O3", "-std=c++17", "--expt-relaxed-constexpr", "-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__", "-w"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.fc = nn.Linear(in_features, out_features, dtype=torch.float16)

    def forward(self, x):
        return _mod.linear_relu(x.contiguous(), self.fc.weight, self.fc.bias)
