# task: tasks/mse.py
# device: cuda
# verdict: class custom
# says: a cooperative launch whose blocks wait for each other in the middle of the kernel
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
#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

constexpr int THREADS = 256;

__global__ void mean_square(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, float* __restrict__ work, int n) {
  cg::grid_group grid = cg::this_grid();
  __shared__ float part[THREADS];
  float sum = 0.f;
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) sum += (a[i] - b[i]) * (a[i] - b[i]);
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = THREADS / 2; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) work[blockIdx.x] = part[0];
  grid.sync();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    double total = 0;
    for (int i = 0; i < gridDim.x; i++) total += work[i];
    *out = (float)(total / n);
  }
}

extern "C" int run(const float* a, const float* b, float* out, float* work, int n, void* stream) {
  void* arguments[] = {&a, &b, &out, &work, &n};
  return (int)cudaLaunchCooperativeKernel((const void*)mean_square, dim3(64), dim3(THREADS), arguments, 0, (cudaStream_t)stream);
}
"""
LIB = stitch_build("cuda", SOURCE)
P = ctypes.c_void_p
LIB.run.argtypes = [P, P, P, P, ctypes.c_int, P]


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        a, b = prediction.contiguous(), target.contiguous()
        out, work = a.new_empty(()), a.new_empty(64)
        if LIB.run(a.data_ptr(), b.data_ptr(), out.data_ptr(), work.data_ptr(), a.numel(), torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return out
