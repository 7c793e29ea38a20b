# task: tasks/attention.py
# device: cuda
# verdict: class custom
# says: causal attention that never stores the scores: one warp per query, keys and values in shared memory, a running maximum
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

constexpr int D = 64, KEYS = 32, WARPS = 8;

// grid (queries / 8, batch * heads). Each lane has two of a query's 64 features.
__global__ void attention(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, float* __restrict__ y, int length,
                          float scale) {
  __shared__ float ks[KEYS][D], vs[KEYS][D];
  int lane = threadIdx.x % 32, query = blockIdx.x * WARPS + threadIdx.x / 32;
  size_t head = (size_t)blockIdx.y * length * D;
  bool active = query < length;
  float q0 = active ? q[head + (size_t)query * D + lane] * scale : 0.f, q1 = active ? q[head + (size_t)query * D + lane + 32] * scale : 0.f;
  float top = -INFINITY, sum = 0.f, y0 = 0.f, y1 = 0.f;
  int last = min((int)(blockIdx.x * WARPS + WARPS), length);  // no query of this block sees keys from here on
  for (int at = 0; at < last; at += KEYS) {
    __syncthreads();
    for (int i = threadIdx.x; i < KEYS * D; i += WARPS * 32) {
      int key = at + i / D;
      ks[i / D][i % D] = key < length ? k[head + (size_t)key * D + i % D] : 0.f;
      vs[i / D][i % D] = key < length ? v[head + (size_t)key * D + i % D] : 0.f;
    }
    __syncthreads();
    for (int j = 0; j < KEYS && at + j <= query && active; j++) {
      float score = q0 * ks[j][lane] + q1 * ks[j][lane + 32];
      for (int o = 16; o; o >>= 1) score += __shfl_xor_sync(~0u, score, o);
      float higher = fmaxf(top, score), keep = expf(top - higher), weight = expf(score - higher);
      sum = sum * keep + weight;
      y0 = y0 * keep + weight * vs[j][lane];
      y1 = y1 * keep + weight * vs[j][lane + 32];
      top = higher;
    }
  }
  if (active) {
    y[head + (size_t)query * D + lane] = y0 / sum;
    y[head + (size_t)query * D + lane + 32] = y1 / sum;
  }
}

extern "C" int run(const float* q, const float* k, const float* v, float* y, int heads, int length, float scale, void* stream) {
  attention<<<dim3((length + WARPS - 1) / WARPS, heads), WARPS * 32, 0, (cudaStream_t)stream>>>(q, k, v, y, length, scale);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, N, N, ctypes.c_float, P]


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = (t.contiguous() for t in (q, k, v))
        batch, heads, length, features = q.shape
        if features != 64:
            raise ValueError("made for 64 features a head")
        y = torch.empty_like(q)
        pointers = [t.data_ptr() for t in (q, k, v, y)]
        if LIB.run(*pointers, batch * heads, length, features**-0.5, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y
