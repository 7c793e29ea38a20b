# task: tasks/layer_norm.py
# device: cuda
# verdict: class custom
# says: Welford's mean and variance, merged over lanes and warps by Chan's rule
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

struct Moments {
  float mean, m2, count;
};

__device__ Moments merged(Moments a, Moments b) {
  float count = a.count + b.count;
  if (count == 0.f) return a;
  float delta = b.mean - a.mean;
  return {a.mean + delta * (b.count / count), a.m2 + b.m2 + delta * delta * (a.count * b.count / count), count};
}

__device__ Moments over_warp(Moments m) {
  for (int o = 16; o; o >>= 1) {
    Moments other;
    other.mean = __shfl_down_sync(~0u, m.mean, o);
    other.m2 = __shfl_down_sync(~0u, m.m2, o);
    other.count = __shfl_down_sync(~0u, m.count, o);
    m = merged(m, other);
  }
  return m;
}

// one block a row
__global__ void layer_norm(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b, float* __restrict__ y,
                           int columns, float eps) {
  __shared__ Moments part[8];
  __shared__ float mean_, inverse_;
  const float* row = x + (size_t)blockIdx.x * columns;
  Moments m = {0.f, 0.f, 0.f};
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    float v = row[i];
    m.count += 1.f;
    float delta = v - m.mean;
    m.mean += delta / m.count;
    m.m2 += delta * (v - m.mean);
  }
  m = over_warp(m);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = m;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < blockDim.x / 32; i++) m = merged(m, part[i]);
    mean_ = m.mean;
    inverse_ = rsqrtf(m.m2 / m.count + eps);
  }
  __syncthreads();
  float mean = mean_, inverse = inverse_;
  float* out = y + (size_t)blockIdx.x * columns;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = (row[i] - mean) * inverse * w[i] + b[i];
}

extern "C" int run(const float* x, const float* w, const float* b, float* y, int rows, int columns, float eps, void* stream) {
  layer_norm<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, b, y, columns, eps);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, N, N, ctypes.c_float, P]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        w, b, eps = self.norm.weight, self.norm.bias, self.norm.eps
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(x.data_ptr(), w.data_ptr(), b.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], eps, stream):
            raise RuntimeError("the kernel was not launched")
        return y
