# task: tasks/mse.py
# device: cuda
# verdict: class custom
# says: compensated sums in each thread; the last block to finish adds the partial sums in a fixed order
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

constexpr int BLOCKS = 128, THREADS = 256;

// Kahan's sum: `lost` is what the last addition rounded away. The intrinsics keep the compiler from "simplifying" it.
__device__ void add(float& sum, float& lost, float v) {
  float y = __fsub_rn(v, lost);
  float t = __fadd_rn(sum, y);
  lost = __fsub_rn(__fsub_rn(t, sum), y);
  sum = t;
}

__device__ float block_sum(float v) {
  __shared__ float part[THREADS];
  part[threadIdx.x] = v;
  __syncthreads();
  for (int half = THREADS / 2; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  float total = part[0];
  __syncthreads();
  return total;
}

// work: BLOCKS partial sums; tickets: one counter, zero before and after each launch
__global__ void mean_square(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, float* work, unsigned* tickets,
                            int n) {
  __shared__ bool last;
  float sum = 0.f, lost = 0.f;
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += BLOCKS * THREADS) {
    float d = a[i] - b[i];
    add(sum, lost, d * d);
  }
  float total = block_sum(sum);
  if (threadIdx.x == 0) {
    work[blockIdx.x] = total;
    __threadfence();
    last = atomicAdd(tickets, 1u) == BLOCKS - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  volatile float* seen = work;
  total = block_sum(threadIdx.x < BLOCKS ? seen[threadIdx.x] : 0.f);
  if (threadIdx.x == 0) {
    *out = total / n;
    *tickets = 0;
  }
}

extern "C" int run(const float* a, const float* b, float* out, float* work, unsigned* tickets, int n, void* stream) {
  mean_square<<<BLOCKS, THREADS, 0, (cudaStream_t)stream>>>(a, b, out, work, tickets, n);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P = ctypes.c_void_p
LIB.run.argtypes = [P, P, P, P, P, ctypes.c_int, P]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("work", torch.zeros(128), persistent=False)
        self.register_buffer("tickets", torch.zeros(1, dtype=torch.int32), persistent=False)

    def forward(self, prediction, target):
        a, b = prediction.contiguous(), target.contiguous()
        out = a.new_empty(())
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(a.data_ptr(), b.data_ptr(), out.data_ptr(), self.work.data_ptr(), self.tickets.data_ptr(), a.numel(), stream):
            raise RuntimeError("the kernel was not launched")
        return out
