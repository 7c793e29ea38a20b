# task: tasks/batch_norm.py
# device: cuda
# verdict: class custom
# mode: train
# says: batch norm in train mode with its running mean and unbiased running variance
import ctypes

import torch
import torch.nn as nn


# --- stitchwork build helper 1: embedded verbatim; a verifier recognises it by its hash ---
def stitch_build(language, source, flags=()):
    """Compile `source` (plain C ABI; "cpp" by g++ with OpenMP, "cuda" by nvcc) and load it. The same source is compiled once."""
    import ctypes
    import hashlib
    import os
    import shutil
    import subprocess
    import tempfile

    if language == "cuda":
        compiler = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        base = ["-O3", "-std=c++17", "-shared", "-Xcompiler=-fPIC", "-arch=" + os.environ.get("STITCH_CUDA_ARCH", "native")]
    else:
        compiler = shutil.which("g++") or "g++"
        base = ["-O3", "-march=native", "-std=c++17", "-fopenmp", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math"]
    command = [compiler, *base, *flags]
    key = hashlib.sha256("\0".join([language, source, *command[1:]]).encode()).hexdigest()
    folder = os.environ.get("STITCH_BUILD_DIR") or os.path.join(tempfile.gettempdir(), "stitch-build-%d" % os.getuid())
    library = os.path.join(folder, key + ".so")
    if not os.path.exists(library):
        if os.environ.get("STITCH_BUILD") == "lookup":
            raise RuntimeError("this source was not built beforehand: call stitch_build when the module is imported")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            unit = os.path.join(scratch, "kernels.cu" if language == "cuda" else "kernels.cpp")
            with open(unit, "w") as file:
                file.write(source)
            done = subprocess.run([*command, unit, "-o", unit + ".so"], capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError("%s failed:\n%s" % (os.path.basename(compiler), done.stderr))
            os.replace(unit + ".so", library)
    return ctypes.CDLL(library)


# --- end of the stitchwork build helper ---

SOURCE = r"""
#include <cuda_runtime.h>

// block (32, 16) for 32 features; two passes over the batch
__global__ void batch_norm(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b, float* running_mean,
                           float* running_variance, float* __restrict__ y, int rows, int columns, float momentum, float eps) {
  __shared__ float part[16][33];
  int column = blockIdx.x * 32 + threadIdx.x;
  bool inside = column < columns;
  auto total = [&](float v) {
    __syncthreads();
    part[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    float sum = 0.f;
    for (int i = 0; i < 16; i++) sum += part[i][threadIdx.x];
    return sum;
  };
  float sum = 0.f;
  for (int r = threadIdx.y; r < rows && inside; r += 16) sum += x[(size_t)r * columns + column];
  float mean = total(sum) / rows, square = 0.f;
  for (int r = threadIdx.y; r < rows && inside; r += 16) {
    float d = x[(size_t)r * columns + column] - mean;
    square += d * d;
  }
  float variance = total(square) / rows;
  if (!inside) return;
  float scale = rsqrtf(variance + eps) * w[column], shift = b[column];
  for (int r = threadIdx.y; r < rows; r += 16) y[(size_t)r * columns + column] = fmaxf((x[(size_t)r * columns + column] - mean) * scale + shift, 0.f);
  if (threadIdx.y == 0) {
    running_mean[column] += momentum * (mean - running_mean[column]);
    running_variance[column] += momentum * (variance * rows / (rows - 1) - running_variance[column]);
  }
}

extern "C" int run(const float* x, const float* w, const float* b, float* mean, float* variance, float* y, int rows, int columns, float momentum,
                   float eps, void* stream) {
  batch_norm<<<(columns + 31) / 32, dim3(32, 16), 0, (cudaStream_t)stream>>>(x, w, b, mean, variance, y, rows, columns, momentum, eps);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N, F = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
LIB.run.argtypes = [P] * 6 + [N, N, F, F, P]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        norm = self.norm
        if not norm.training:
            return torch.relu(norm(x))
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = [t.data_ptr() for t in (x, norm.weight, norm.bias, norm.running_mean, norm.running_var, y)]
        if LIB.run(*pointers, x.shape[0], x.shape[1], norm.momentum, norm.eps, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        norm.num_batches_tracked += 1
        return y
