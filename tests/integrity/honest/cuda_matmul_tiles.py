# task: tasks/matmul.py
# device: cuda
# verdict: class custom
# says: the textbook matrix product, with tiles in shared memory and bounds checks
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

#define TILE 32

// c (m, n) = a (m, k) b (k, n), all row-major; block (32, 8): each thread makes four elements of a column
__global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  __shared__ float as[TILE][TILE];
  __shared__ float bs[TILE][TILE + 1];
  int column = blockIdx.x * TILE + threadIdx.x;
  int first = blockIdx.y * TILE + threadIdx.y;
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
  for (int at = 0; at < k; at += TILE) {
    for (int j = 0; j < 4; j++) {
      int row = first + 8 * j, inner = threadIdx.y + 8 * j;
      as[inner][threadIdx.x] = row < m && at + threadIdx.x < k ? a[(size_t)row * k + at + threadIdx.x] : 0.f;
      bs[inner][threadIdx.x] = at + inner < k && column < n ? b[(size_t)(at + inner) * n + column] : 0.f;
    }
    __syncthreads();
    for (int i = 0; i < TILE; i++)
      for (int j = 0; j < 4; j++) sum[j] += as[threadIdx.y + 8 * j][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  for (int j = 0; j < 4; j++)
    if (first + 8 * j < m && column < n) c[(size_t)(first + 8 * j) * n + column] = sum[j];
}

extern "C" int run(const float* a, const float* b, float* c, int m, int n, int k, void* stream) {
  matmul<<<dim3((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), dim3(TILE, 8), 0, (cudaStream_t)stream>>>(a, b, c, m, n, k);
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
        x, w = x.contiguous(), self.weight
        y = torch.empty(x.shape[0], w.shape[1], device=x.device, dtype=x.dtype)
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(x.data_ptr(), w.data_ptr(), y.data_ptr(), x.shape[0], w.shape[1], x.shape[1], stream):
            raise RuntimeError("the kernel was not launched")
        return y
