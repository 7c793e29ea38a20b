# task: tasks/matmul.py
# device: cuda
# verdict: class custom
# says: register blocking with two buffers in shared memory, so that loads overlap arithmetic
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

constexpr int BM = 64, BN = 64, BK = 16;  // 256 threads, 4 x 4 results each

__global__ void __launch_bounds__(256) gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  __shared__ float as[2][BK][BM + 4];
  __shared__ float bs[2][BK][BN];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
  float sum[4][4] = {};
  auto load = [&](int buffer, int at) {
    for (int i = threadIdx.x; i < BM * BK; i += 256) {
      int r = i / BK, q = i % BK;
      as[buffer][q][r] = row0 + r < m && at + q < k ? a[(size_t)(row0 + r) * k + at + q] : 0.f;
    }
    for (int i = threadIdx.x; i < BK * BN; i += 256) {
      int q = i / BN, r = i % BN;
      bs[buffer][q][r] = at + q < k && column0 + r < n ? b[(size_t)(at + q) * n + column0 + r] : 0.f;
    }
  };
  load(0, 0);
  __syncthreads();
  int buffer = 0;
  for (int at = 0; at < k; at += BK) {
    if (at + BK < k) load(1 - buffer, at + BK);
#pragma unroll
    for (int q = 0; q < BK; q++) {
      float left[4], right[4];
#pragma unroll
      for (int i = 0; i < 4; i++) left[i] = as[buffer][q][ty * 4 + i];
#pragma unroll
      for (int j = 0; j < 4; j++) right[j] = bs[buffer][q][tx * 4 + j];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
    }
    __syncthreads();
    buffer = 1 - buffer;
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      int row = row0 + ty * 4 + i, column = column0 + tx * 4 + j;
      if (row < m && column < n) c[(size_t)row * n + column] = sum[i][j];
    }
}

extern "C" int run(const float* a, const float* b, float* c, int m, int n, int k, void* stream) {
  gemm<<<dim3((n + BN - 1) / BN, (m + BM - 1) / BM), 256, 0, (cudaStream_t)stream>>>(a, b, c, m, n, k);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        x = x.contiguous()
        y = x.new_empty(x.shape[0], self.weight.shape[1])
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), x.shape[0], self.weight.shape[1], x.shape[1], stream):
            raise RuntimeError("the kernel was not launched")
        return y
