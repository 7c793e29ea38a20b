# task: tasks/energy_beside_rows.py
# device: cuda
# says: a kernel of its own on one stream while cuBLAS multiplies on another; events join both, and a reduction of its own follows
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

__global__ void halved(const float* x, float* y, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) y[at] = x[at] * 0.5f;
}

__global__ void squares(const float* x, double* total, int n) {
  double sum = 0.0;
  for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x) sum += (double)x[at] * x[at];
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

__global__ void ended(const double* total, float* y, int n) { *y = (float)(*total / n); }

extern "C" int half_of(const float* x, float* y, int n, void* s) {
  halved<<<(n + 255) / 256, 256, 0, (cudaStream_t)s>>>(x, y, n);
  return (int)cudaGetLastError();
}
extern "C" int mean_square(const float* x, double* total, float* y, int n, void* s) {
  cudaMemsetAsync(total, 0, sizeof(double), (cudaStream_t)s);
  squares<<<264, 256, 0, (cudaStream_t)s>>>(x, total, n);
  ended<<<1, 1, 0, (cudaStream_t)s>>>(total, y, n);
  return (int)cudaGetLastError();
}
"""
LIBRARY = stitch_build("cuda", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, hidden) / features**0.5)
        self.side = None

    def forward(self, x):
        x = x.contiguous()
        self.side = self.side or torch.cuda.Stream(x.device)
        mean, half, total = x.new_empty(()), torch.empty_like(x), torch.empty(1, dtype=torch.float64, device=x.device)
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        failed = LIBRARY.half_of(p(x), p(half), x.numel(), ctypes.c_void_p(self.side.cuda_stream))
        product = x @ self.weight
        failed = LIBRARY.mean_square(p(product), p(total), p(mean), product.numel(), stream()) or failed
        main.wait_stream(self.side)
        half.record_stream(self.side)
        if failed:
            raise RuntimeError("a kernel was not launched")
        return mean, half
