# task: tasks/softmax.py
# device: cuda
# verdict: class custom
# says: one warp per row, with softmax in one pass over the data using warp shuffles
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

// Online softmax: each lane keeps its own maximum and rescaled sum, the warp merges them by shuffles. Rows are read twice, written once.
__global__ void softmax_warp(const float* __restrict__ x, const float* __restrict__ scale, float* __restrict__ y, int rows, int columns) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* in = x + (size_t)row * columns;
  float* out = y + (size_t)row * columns;
  float top = -INFINITY, sum = 0.f;
  for (int i = lane; i < columns; i += 32) {
    float v = in[i];
    if (v > top) {
      sum = sum * expf(top - v) + 1.f;
      top = v;
    } else {
      sum += expf(v - top);
    }
  }
  for (int offset = 16; offset; offset >>= 1) {
    float other_top = __shfl_xor_sync(~0u, top, offset);
    float other_sum = __shfl_xor_sync(~0u, sum, offset);
    float both = fmaxf(top, other_top);
    float mine = top == -INFINITY ? 0.f : sum * expf(top - both);
    float theirs = other_top == -INFINITY ? 0.f : other_sum * expf(other_top - both);
    sum = mine + theirs;
    top = both;
  }
  float inverse = 1.f / sum;
  for (int i = lane; i < columns; i += 32) out[i] = expf(in[i] - top) * inverse * scale[i];
}

extern "C" int run(const float* x, const float* scale, float* y, int rows, int columns, void* stream) {
  softmax_warp<<<(rows + 7) / 8, 256, 0, (cudaStream_t)stream>>>(x, scale, y, rows, columns);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        code = LIB.run(x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], torch.cuda.current_stream().cuda_stream)
        if code:
            raise RuntimeError(f"CUDA error {code}")
        return y
