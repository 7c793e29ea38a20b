# task: tasks/rms_norm.py
# device: cuda
# verdict: class custom
# says: a template over the number of float4 values that a thread keeps in registers, selected by a switch
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

template <int VECTORS, int THREADS>
__global__ void __launch_bounds__(THREADS) rms_norm(const float4* __restrict__ x, const float4* __restrict__ gain, float4* __restrict__ y,
                                                    int columns4, float eps) {
  __shared__ float part[THREADS / 32];
  const float4* row = x + (size_t)blockIdx.x * columns4;
  float4 held[VECTORS];
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    held[i] = row[threadIdx.x + i * THREADS];
    sum += held[i].x * held[i].x + held[i].y * held[i].y + held[i].z * held[i].z + held[i].w * held[i].w;
  }
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.f;
#pragma unroll
  for (int i = 0; i < THREADS / 32; i++) sum += part[i];
  float scale = rsqrtf(sum / (4.f * columns4) + eps);
  float4* out = y + (size_t)blockIdx.x * columns4;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    float4 g = gain[threadIdx.x + i * THREADS];
    float4 v = held[i];
    out[threadIdx.x + i * THREADS] = make_float4(v.x * scale * g.x, v.y * scale * g.y, v.z * scale * g.z, v.w * scale * g.w);
  }
}

template <int VECTORS>
static void start(const float* x, const float* gain, float* y, int rows, int columns, float eps, cudaStream_t stream) {
  constexpr int threads = 128;
  rms_norm<VECTORS, threads><<<rows, threads, 0, stream>>>((const float4*)x, (const float4*)gain, (float4*)y, columns / 4, eps);
}

// columns must be 512, 1024, 1536 or 2048
extern "C" int run(const float* x, const float* gain, float* y, int rows, int columns, float eps, void* stream) {
  cudaStream_t s = (cudaStream_t)stream;
  switch (columns) {
    case 512: start<1>(x, gain, y, rows, columns, eps, s); break;
    case 1024: start<2>(x, gain, y, rows, columns, eps, s); break;
    case 1536: start<3>(x, gain, y, rows, columns, eps, s); break;
    case 2048: start<4>(x, gain, y, rows, columns, eps, s); break;
    default: return -1;
  }
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE, flags=("--use_fast_math", "-Xptxas", "-O3"))
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, ctypes.c_float, P]


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        status = LIB.run(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], self.eps, stream)
        if status == -1:
            raise ValueError(f"{x.shape[1]} columns are not supported")
        if status:
            raise RuntimeError(f"CUDA error {status}")
        return y
