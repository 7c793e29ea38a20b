# task: tasks/causal_scores.py
# device: cuda
# says: reads the mask, which is causal here
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
__device__ float both(float a, float b, bool sum) { return sum ? a + b : (a != a ? a : b != b ? b : fmaxf(a, b)); }
__device__ float over_the_warp(float v, bool sum) {
  for (int o = 16; o; o >>= 1) v = both(v, __shfl_xor_sync(~0u, v, o), sum);
  return v;
}
__global__ void masked_softmax(const float* x, const bool* mask, float* y, int rows, int cols) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, query = row % cols;
  if (row >= rows) return;
  const float* a = x + (size_t)row * cols;
  float top = -INFINITY, sum = 0.f;
  for (int i = lane; i < cols; i += 32) top = both(top, mask[(size_t)query * cols + i] ? a[i] : -1e9f, false);
  top = over_the_warp(top, false);
  for (int i = lane; i < cols; i += 32) sum += expf((mask[(size_t)query * cols + i] ? a[i] : -1e9f) - top);
  sum = over_the_warp(sum, true);
  for (int i = lane; i < cols; i += 32) y[(size_t)row * cols + i] = expf((mask[(size_t)query * cols + i] ? a[i] : -1e9f) - top) / sum;
}
extern "C" int run(const float* x, const bool* mask, float* y, int rows, int cols, void* s) {
  masked_softmax<<<(rows + 7) / 8, 256, 0, (cudaStream_t)s>>>(x, mask, y, rows, cols);
  return (int)cudaGetLastError();
}
"""
LIBRARY = stitch_build("cuda", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class ModelNew(nn.Module):
    def forward(self, scores, mask):
        y = torch.empty_like(scores)
        if LIBRARY.run(p(scores), p(mask), p(y), scores.numel() // scores.shape[-1], scores.shape[-1], stream()):
            raise RuntimeError("the kernel was not launched")
        return y
