# task: tasks/energy_beside_rows.py
# device: cuda
# verdict: class custom
# says: the mean square of a product in fp32, summed in fp64, beside a large output
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

__global__ void energy(const float* a, const float* b, double* total, int m, int k, int n) {
  __shared__ float left[16][17], right[16][17];
  __shared__ double squares;
  const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  if (!threadIdx.x && !threadIdx.y) squares = 0.0;
  float sum = 0.f;
  for (int at = 0; at < k; at += 16) {
    left[threadIdx.y][threadIdx.x] = row < m && at + threadIdx.x < k ? a[(size_t)row * k + at + threadIdx.x] : 0.f;
    right[threadIdx.y][threadIdx.x] = column < n && at + threadIdx.y < k ? b[(size_t)(at + threadIdx.y) * n + column] : 0.f;
    __syncthreads();
    for (int q = 0; q < 16; ++q) sum += left[threadIdx.y][q] * right[q][threadIdx.x];
    __syncthreads();
  }
  double square = row < m && column < n ? (double)sum * sum : 0.0;
  for (int o = 16; o; o >>= 1) square += __shfl_xor_sync(~0u, square, o);
  if ((threadIdx.y * 16 + threadIdx.x) % 32 == 0) atomicAdd(&squares, square);
  __syncthreads();
  if (!threadIdx.x && !threadIdx.y) atomicAdd(total, squares);
}

__global__ void ended(const double* total, float* y, long long count) { *y = (float)(*total / count); }

__global__ void halved(const float* x, float* y, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) y[at] = x[at] * 0.5f;
}

extern "C" int run(const float* a, const float* b, double* total, float* mean, float* half, int m, int k, int n, void* s) {
  cudaMemsetAsync(total, 0, sizeof(double), (cudaStream_t)s);
  energy<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16), 0, (cudaStream_t)s>>>(a, b, total, m, k, n);
  ended<<<1, 1, 0, (cudaStream_t)s>>>(total, mean, (long long)m * n);
  halved<<<(m * k + 255) / 256, 256, 0, (cudaStream_t)s>>>(a, half, m * k);
  return (int)cudaGetLastError();
}
"""
LIBRARY = stitch_build("cuda", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, hidden) / features**0.5)

    def forward(self, x):
        x = x.contiguous()
        mean, half, total = x.new_empty(()), torch.empty_like(x), torch.empty(1, dtype=torch.float64, device=x.device)
        if LIBRARY.run(p(x), p(self.weight), p(total), p(mean), p(half), *x.shape, self.weight.shape[1], stream()):
            raise RuntimeError("the kernel was not launched")
        return mean, half
