# task: tasks/matmul.py
# device: cuda
# verdict: class custom
# says: split-K: partial products over the inner dimension go to a workspace, and a second kernel adds them in a fixed order
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

// grid (n / 16, m / 16, splits): partial products into work (splits, m, n)
__global__ void partial_product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ work, int m, int n, int k, int splits) {
  __shared__ float as[16][17], bs[16][17];
  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  int length = ((k + splits - 1) / splits + 15) / 16 * 16;
  int begin = blockIdx.z * length, end = min(begin + length, k);
  float sum = 0.f;
  for (int at = begin; at < end; at += 16) {
    as[threadIdx.y][threadIdx.x] = row < m && at + threadIdx.x < end ? a[(size_t)row * k + at + threadIdx.x] : 0.f;
    bs[threadIdx.y][threadIdx.x] = at + threadIdx.y < end && column < n ? b[(size_t)(at + threadIdx.y) * n + column] : 0.f;
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) work[((size_t)blockIdx.z * m + row) * n + column] = sum;
}

__global__ void add_parts(const float* __restrict__ work, float* __restrict__ c, int elements, int splits) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  float sum = 0.f;
  for (int s = 0; s < splits; s++) sum += work[(size_t)s * elements + i];
  c[i] = sum;
}

extern "C" int run(const float* a, const float* b, float* work, float* c, int m, int n, int k, int splits, void* stream) {
  cudaStream_t s = (cudaStream_t)stream;
  partial_product<<<dim3((n + 15) / 16, (m + 15) / 16, splits), dim3(16, 16), 0, s>>>(a, b, work, m, n, k, splits);
  add_parts<<<(m * n + 255) / 256, 256, 0, s>>>(work, c, m * n, splits);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, N, N, N, N, P]


class ModelNew(nn.Module):
    splits = 4

    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))
        self.workspace = None

    def forward(self, x):
        x = x.contiguous()
        m, (k, n) = x.shape[0], self.weight.shape
        if self.workspace is None or self.workspace.numel() < self.splits * m * n:
            self.workspace = x.new_empty(self.splits * m * n)  # this module's scratch memory, which is overwritten by each call and never returned
        y = x.new_empty(m, n)
        pointers = [t.data_ptr() for t in (x, self.weight, self.workspace, y)]
        if LIB.run(*pointers, m, n, k, self.splits, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("a kernel was not launched")
        return y
