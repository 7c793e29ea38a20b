# task: tasks/softmax.py
# device: cuda
# says: copies its weights to constant memory in every call, so that they are always those of this object
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
__constant__ float gain[4096];
__device__ float both(float a, float b, bool sum) { return sum ? a + b : fmaxf(a, b); }
__device__ float over_the_block(float v, bool sum, float* shared) {
  for (int o = 16; o; o >>= 1) v = both(v, __shfl_xor_sync(~0u, v, o), sum);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = shared[0];
  for (int w = 1; w < blockDim.x / 32; w++) v = both(v, shared[w], sum);
  return v;
}
__global__ void scaled_softmax(const float* x, float* y, int cols) {
  __shared__ float shared[32];
  const float* a = x + (size_t)blockIdx.x * cols;
  float top = -INFINITY, sum = 0.f;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) { float v = a[i]; top = v != v ? v : fmaxf(top, v); }
  top = over_the_block(top, false, shared);
  for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += expf(a[i] - top);
  sum = over_the_block(sum, true, shared);
  for (int i = threadIdx.x; i < cols; i += blockDim.x) y[(size_t)blockIdx.x * cols + i] = expf(a[i] - top) / sum * gain[i];
}
extern "C" int run(const float* x, const float* scale, float* y, int rows, int cols, void* s) {
  cudaMemcpyToSymbolAsync(gain, scale, cols * sizeof(float), 0, cudaMemcpyDeviceToDevice, (cudaStream_t)s);
  scaled_softmax<<<rows, 256, 0, (cudaStream_t)s>>>(x, y, cols);
  return (int)cudaGetLastError();
}
"""
LIBRARY = stitch_build("cuda", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = torch.empty_like(x)
        if LIBRARY.run(p(x), p(self.scale), p(y), x.shape[0], x.shape[1], stream()):
            raise RuntimeError("the kernel was not launched")
        return y
