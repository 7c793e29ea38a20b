# task: tasks/histogram.py
# device: cuda
# says: counts with atomics in shared memory, merged with integer atomics, whose order cannot affect the result
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

__global__ void count(const long long* __restrict__ values, unsigned long long* __restrict__ counts, int* __restrict__ parity, int n, int bins) {
  extern __shared__ unsigned local[];
  for (int i = threadIdx.x; i < bins; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int v = (int)values[i];
    atomicAdd(&local[v], 1u);
    parity[i] = v % 2;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < bins; i += blockDim.x)
    if (local[i]) atomicAdd(&counts[i], (unsigned long long)local[i]);
}

__global__ void above(const unsigned long long* __restrict__ counts, bool* __restrict__ out, int bins, float mean) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < bins) out[i] = (float)counts[i] > mean;
}

extern "C" int run(const long long* values, unsigned long long* counts, bool* high, int* parity, int n, int bins, void* stream) {
  cudaStream_t s = (cudaStream_t)stream;
  cudaMemsetAsync(counts, 0, bins * sizeof(long long), s);
  count<<<64, 256, bins * sizeof(unsigned), s>>>(values, counts, parity, n, bins);
  above<<<(bins + 127) / 128, 128, 0, s>>>(counts, high, bins, (float)n / bins);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, values):
        values = values.contiguous()
        counts = torch.empty(self.bins, dtype=torch.int64, device=values.device)
        high = torch.empty(self.bins, dtype=torch.bool, device=values.device)
        parity = torch.empty(values.shape, dtype=torch.int32, device=values.device)
        pointers = [t.data_ptr() for t in (values, counts, high, parity)]
        if LIB.run(*pointers, values.numel(), self.bins, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("a kernel was not launched")
        return counts, high, parity
