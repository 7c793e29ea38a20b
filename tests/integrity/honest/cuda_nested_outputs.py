# task: tasks/two_outputs.py
# device: cuda
# verdict: class custom
# says: a tensor and a dict of tensors, all from one kernel
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

__device__ float all_sum(float v, float* part) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0.f;
  for (int i = 0; i < blockDim.x / 32; i++) v += part[i];
  return v;
}

__global__ void softmax_best_norm(const float* __restrict__ x, const float* __restrict__ scale, float* __restrict__ y, long long* __restrict__ best,
                                  float* __restrict__ norm, int columns) {
  __shared__ float part[8];
  __shared__ float tops[8];
  __shared__ int places[8];
  const float* in = x + (size_t)blockIdx.x * columns;
  float* out = y + (size_t)blockIdx.x * columns;
  float top = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, in[i]);
  for (int o = 16; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
  __syncthreads();
  for (int i = 0; i < blockDim.x / 32; i++) top = fmaxf(top, tops[i]);
  float sum = 0.f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(in[i] - top);
  sum = all_sum(sum, part);
  float square = 0.f, most = -INFINITY;
  int place = columns;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    float v = expf(in[i] - top) / sum * scale[i];
    out[i] = v;
    square += v * v;
    if (v > most) { most = v; place = i; }
  }
  square = all_sum(square, part);
  for (int o = 16; o; o >>= 1) {
    float v = __shfl_xor_sync(~0u, most, o);
    int p = __shfl_xor_sync(~0u, place, o);
    if (v > most || (v == most && p < place)) { most = v; place = p; }
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) { tops[threadIdx.x / 32] = most; places[threadIdx.x / 32] = place; }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < blockDim.x / 32; i++)
      if (tops[i] > most || (tops[i] == most && places[i] < place)) { most = tops[i]; place = places[i]; }
    best[blockIdx.x] = place;
    norm[blockIdx.x] = square;
  }
}

extern "C" int run(const float* x, const float* scale, float* y, long long* best, float* norm, int rows, int columns, void* stream) {
  softmax_best_norm<<<rows, 256, 0, (cudaStream_t)stream>>>(x, scale, y, best, norm, columns);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P] * 5 + [N, N, P]


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y, norm = torch.empty_like(x), x.new_empty(rows)
        best = torch.empty(rows, dtype=torch.int64, device=x.device)
        pointers = [t.data_ptr() for t in (x, self.scale, y, best, norm)]
        if LIB.run(*pointers, rows, columns, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y, {"best": best, "norm": norm}
