# task: tasks/row_stats.py
# device: cuda
# verdict: class custom
# says: five statistics of a row in one kernel, the variance from a second pass over shared memory, and a dict as output
import ctypes
from dataclasses import dataclass

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

constexpr int THREADS = 256, WARPS = THREADS / 32;

__device__ float sum_of_block(float v, float* part) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0.f;
  for (int i = 0; i < WARPS; i++) v += part[i];
  __syncthreads();
  return v;
}

// shared memory: the row
__global__ void row_stats(const float* __restrict__ x, float* mean, float* variance, float* low, float* high, long long* at, int columns) {
  extern __shared__ float row[];
  __shared__ float part[WARPS], lows[WARPS], highs[WARPS];
  __shared__ int places[WARPS];
  const float* in = x + (size_t)blockIdx.x * columns;
  float sum = 0.f, least = INFINITY, most = -INFINITY;
  int place = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) {
    float v = in[i];
    row[i] = v;
    sum += v;
    least = fminf(least, v);
    if (v > most) { most = v; place = i; }  // the first of equal ones, within a thread
  }
  float average = sum_of_block(sum, part) / columns;
  float square = 0.f;
  for (int i = threadIdx.x; i < columns; i += THREADS) square += (row[i] - average) * (row[i] - average);
  square = sum_of_block(square, part) / columns;
  for (int o = 16; o; o >>= 1) {
    least = fminf(least, __shfl_xor_sync(~0u, least, o));
    float other = __shfl_xor_sync(~0u, most, o);
    int there = __shfl_xor_sync(~0u, place, o);
    if (other > most || (other == most && there < place)) { most = other; place = there; }
  }
  if (threadIdx.x % 32 == 0) {
    lows[threadIdx.x / 32] = least;
    highs[threadIdx.x / 32] = most;
    places[threadIdx.x / 32] = place;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < WARPS; i++) {
      least = fminf(least, lows[i]);
      if (highs[i] > most || (highs[i] == most && places[i] < place)) { most = highs[i]; place = places[i]; }
    }
    mean[blockIdx.x] = average;
    variance[blockIdx.x] = square;
    low[blockIdx.x] = least;
    high[blockIdx.x] = most;
    at[blockIdx.x] = place;
  }
}

extern "C" int run(const float* x, float* mean, float* variance, float* low, float* high, long long* at, int rows, int columns, void* stream) {
  row_stats<<<rows, THREADS, columns * sizeof(float), (cudaStream_t)stream>>>(x, mean, variance, low, high, at, columns);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P] * 6 + [N, N, P]


@dataclass
class Statistics:
    mean: torch.Tensor
    variance: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    at: torch.Tensor

    @classmethod
    def empty(cls, x):
        rows = x.shape[0]
        return cls(*(x.new_empty(rows) for _ in range(4)), torch.empty(rows, dtype=torch.int64, device=x.device))

    def tensors(self):
        return [self.mean, self.variance, self.low, self.high, self.at]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        found = Statistics.empty(x)
        pointers = [tensor.data_ptr() for tensor in found.tensors()]
        if LIB.run(x.data_ptr(), *pointers, x.shape[0], x.shape[1], torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return dict(vars(found))
