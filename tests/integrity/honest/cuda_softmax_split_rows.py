# task: tasks/variants.py
# device: cuda
# verdict: class custom
# says: each row is split across several blocks, and a second kernel merges their partial maxima and sums in a fixed order
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

constexpr int THREADS = 128;

__device__ float block_max(float v) {
  __shared__ float part[THREADS / 32];
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[0];
  for (int i = 1; i < THREADS / 32; i++) v = fmaxf(v, part[i]);
  __syncthreads();
  return v;
}

__device__ float block_sum(float v) {
  __shared__ float part[THREADS / 32];
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[0];
  for (int i = 1; i < THREADS / 32; i++) v += part[i];
  __syncthreads();
  return v;
}

// grid (splits, rows): maximum and sum of one part of a row
__global__ void partial(const float* __restrict__ x, float2* __restrict__ found, int columns, int splits) {
  int length = (columns + splits - 1) / splits;
  int begin = blockIdx.x * length, end = min(begin + length, columns);
  const float* row = x + (size_t)blockIdx.y * columns;
  float top = -INFINITY;
  for (int i = begin + threadIdx.x; i < end; i += THREADS) top = fmaxf(top, row[i]);
  top = block_max(top);
  float sum = 0.f;
  for (int i = begin + threadIdx.x; i < end; i += THREADS) sum += expf(row[i] - top);
  sum = block_sum(sum);
  if (threadIdx.x == 0) found[(size_t)blockIdx.y * splits + blockIdx.x] = make_float2(top, sum);
}

__global__ void finish(const float* __restrict__ x, const float2* __restrict__ found, float* __restrict__ y, int columns, int splits) {
  const float2* parts = found + (size_t)blockIdx.y * splits;
  float top = -INFINITY;
  for (int i = 0; i < splits; i++) top = fmaxf(top, parts[i].x);
  float sum = 0.f;
  for (int i = 0; i < splits; i++) if (parts[i].y != 0.f) sum += parts[i].y * expf(parts[i].x - top);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < columns) {
    size_t at = (size_t)blockIdx.y * columns + i;
    y[at] = expf(x[at] - top) / sum;
  }
}

extern "C" int run(const float* x, float* scratch, float* y, int rows, int columns, int splits, void* stream) {
  cudaStream_t s = (cudaStream_t)stream;
  partial<<<dim3(splits, rows), THREADS, 0, s>>>(x, (float2*)scratch, columns, splits);
  finish<<<dim3((columns + 255) / 256, rows), 256, 0, s>>>(x, (const float2*)scratch, y, columns, splits);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, N, P]
SPLITS = 4


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        scratch = torch.empty(rows, SPLITS, 2, device=x.device, dtype=torch.float32)
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(x.data_ptr(), scratch.data_ptr(), y.data_ptr(), rows, columns, SPLITS, stream):
            raise RuntimeError("a kernel was not launched")
        return y
