# task: tasks/cumsum.py
# device: cuda
# verdict: class custom
# says: a block-wide scan using warp shuffles, which processes one row at a time in pieces with a carry
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

__global__ void scan_rows(const float* __restrict__ x, float* __restrict__ y, int columns) {
  __shared__ float sums[32];
  const float* in = x + (size_t)blockIdx.x * columns;
  float* out = y + (size_t)blockIdx.x * columns;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  float carry = 0.f;
  for (int at = 0; at < columns; at += blockDim.x) {
    int i = at + threadIdx.x;
    float v = i < columns ? in[i] : 0.f;
    for (int o = 1; o < 32; o *= 2) {
      float before = __shfl_up_sync(~0u, v, o);
      if (lane >= o) v += before;
    }
    if (lane == 31) sums[warp] = v;
    __syncthreads();
    float before = 0.f, all = 0.f;
    for (int w = 0; w < warps; w++) {
      if (w < warp) before += sums[w];
      all += sums[w];
    }
    if (i < columns) out[i] = carry + before + v;
    carry += all;
    __syncthreads();
  }
}

extern "C" int run(const float* x, float* y, int rows, int columns, void* stream) {
  scan_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, y, columns);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
LIB.run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if LIB.run(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y
