# task: tasks/linear.py
# device: cuda
# verdict: class custom
# says: the weight is transposed once, and again whenever the parameter changes; bias and gelu are in the product's epilogue
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

__global__ void transpose(const float* __restrict__ in, float* __restrict__ out, int rows, int columns) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < columns && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * columns + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < rows && y + j < columns) out[(size_t)(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

// y (m, n) = gelu(x (m, k) w (k, n) + bias); n and k are multiples of 32
__global__ void linear_gelu(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ y,
                            int m, int n, int k) {
  __shared__ float xs[32][33], ws[32][33];
  int column = blockIdx.x * 32 + threadIdx.x;
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
  for (int at = 0; at < k; at += 32) {
    for (int j = 0; j < 4; j++) {
      int inner = threadIdx.y + 8 * j, row = blockIdx.y * 32 + inner;
      xs[inner][threadIdx.x] = row < m ? x[(size_t)row * k + at + threadIdx.x] : 0.f;
      ws[inner][threadIdx.x] = w[(size_t)(at + inner) * n + column];
    }
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < 32; i++)
      for (int j = 0; j < 4; j++) sum[j] = fmaf(xs[threadIdx.y + 8 * j][i], ws[i][threadIdx.x], sum[j]);
    __syncthreads();
  }
  float b = bias[column];
  for (int j = 0; j < 4; j++) {
    int row = blockIdx.y * 32 + threadIdx.y + 8 * j;
    float v = sum[j] + b;
    if (row < m) y[(size_t)row * n + column] = 0.5f * v * (1.f + erff(v * 0.70710678118654752f));
  }
}

extern "C" int pack(const float* in, float* out, int rows, int columns, void* stream) {
  transpose<<<dim3((columns + 31) / 32, (rows + 31) / 32), dim3(32, 8), 0, (cudaStream_t)stream>>>(in, out, rows, columns);
  return (int)cudaGetLastError();
}

extern "C" int run(const float* x, const float* w, const float* bias, float* y, int m, int n, int k, void* stream) {
  linear_gelu<<<dim3(n / 32, (m + 31) / 32), dim3(32, 8), 0, (cudaStream_t)stream>>>(x, w, bias, y, m, n, k);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.pack.argtypes = [P, P, N, N, P]
LIB.run.argtypes = [P, P, P, P, N, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.packed = None
        self.packed_version = None

    def weight(self):
        """Returns the transposed weight, which is recomputed if the parameter was replaced or changed in place."""
        w = self.linear.weight
        version = (w.data_ptr(), w._version)
        if self.packed_version != version:
            self.packed = torch.empty_like(w)
            if LIB.pack(w.data_ptr(), self.packed.data_ptr(), w.shape[0], w.shape[1], torch.cuda.current_stream().cuda_stream):
                raise RuntimeError("the weight was not packed")
            self.packed_version = version
        return self.packed

    def forward(self, x):
        x, w = x.contiguous(), self.weight()
        y = x.new_empty(x.shape[0], w.shape[1])
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(x.data_ptr(), w.data_ptr(), self.linear.bias.data_ptr(), y.data_ptr(), x.shape[0], w.shape[1], w.shape[0], stream):
            raise RuntimeError("the kernel was not launched")
        return y
