# task: tasks/matmul.py
# device: cuda
# verdict: class custom
# says: more than 48 KB of dynamic shared memory, which must be requested
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

constexpr int ROWS = 16;

// A block keeps 16 whole rows of a in shared memory (k * 64 bytes) and makes 16 x 128 results.
__global__ void strip_product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  extern __shared__ float strip[];
  int first = blockIdx.y * ROWS, column = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = threadIdx.x; i < ROWS * k; i += blockDim.x) strip[i] = first + i / k < m ? a[(size_t)(first + i / k) * k + i % k] : 0.f;
  __syncthreads();
  if (column >= n) return;
  float sum[ROWS] = {};
  for (int i = 0; i < k; i++) {
    float v = b[(size_t)i * n + column];
#pragma unroll
    for (int r = 0; r < ROWS; r++) sum[r] = fmaf(strip[r * k + i], v, sum[r]);
  }
  for (int r = 0; r < ROWS; r++)
    if (first + r < m) c[(size_t)(first + r) * n + column] = sum[r];
}

extern "C" int run(const float* a, const float* b, float* c, int m, int n, int k, void* stream) {
  int bytes = ROWS * k * (int)sizeof(float);
  int failed = (int)cudaFuncSetAttribute(strip_product, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (failed) return failed;
  strip_product<<<dim3((n + 127) / 128, (m + ROWS - 1) / ROWS), 128, bytes, (cudaStream_t)stream>>>(a, b, c, m, n, k);
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
