# task: tasks/rms_norm.py
# device: cuda
# verdict: class custom
# says: a persistent kernel whose blocks fetch rows from a counter in global memory, which is zeroed before each launch
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

__global__ void persistent(const float* __restrict__ x, const float* __restrict__ gain, float* __restrict__ y, int rows, int columns, float eps,
                           int* __restrict__ next) {
  __shared__ int row_;
  __shared__ float part[8];
  while (true) {
    if (threadIdx.x == 0) row_ = atomicAdd(next, 1);
    __syncthreads();
    int row = row_;
    if (row >= rows) return;
    const float* in = x + (size_t)row * columns;
    float sum = 0.f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += in[i] * in[i];
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.f;
    for (int i = 0; i < 8; i++) sum += part[i];
    float scale = rsqrtf(sum / columns + eps);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) y[(size_t)row * columns + i] = in[i] * scale * gain[i];
    __syncthreads();  // before row_ and part are written again
  }
}

extern "C" int run(const float* x, const float* gain, float* y, int rows, int columns, float eps, int* next, void* stream) {
  int device = 0, processors = 0, blocks = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, persistent, 256, 0);
  cudaMemsetAsync(next, 0, sizeof(int), (cudaStream_t)stream);
  persistent<<<processors * blocks, 256, 0, (cudaStream_t)stream>>>(x, gain, y, rows, columns, eps, next);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, ctypes.c_float, P, P]


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps
        self.register_buffer("next_row", torch.zeros(1, dtype=torch.int32), persistent=False)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        shape = (x.shape[0], x.shape[1], self.eps)
        if LIB.run(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), *shape, self.next_row.data_ptr(), stream):
            raise RuntimeError("the kernel was not launched")
        return y
