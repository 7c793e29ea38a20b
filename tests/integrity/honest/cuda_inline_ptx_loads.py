# task: tasks/rms_norm.py
# device: cuda
# verdict: class custom
# says: loads and stores with cache hints, in inline PTX
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

__device__ float4 streamed(const float4* p) {
  float4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}

__device__ void put(float4* p, float4 v) {
  asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

// a row of 1024 floats a block of 256
__global__ void rms_norm(const float4* __restrict__ x, const float4* __restrict__ gain, float4* __restrict__ y, float eps) {
  __shared__ float part[8];
  size_t at = (size_t)blockIdx.x * 256 + threadIdx.x;
  float4 v = streamed(x + at);
  float sum = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.f;
  for (int i = 0; i < 8; i++) sum += part[i];
  float scale = rsqrtf(sum / 1024.f + eps);
  float4 g = gain[threadIdx.x];
  put(y + at, make_float4(v.x * scale * g.x, v.y * scale * g.y, v.z * scale * g.z, v.w * scale * g.w));
}

extern "C" int run(const float* x, const float* gain, float* y, int rows, float eps, void* stream) {
  rms_norm<<<rows, 256, 0, (cudaStream_t)stream>>>((const float4*)x, (const float4*)gain, (float4*)y, eps);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P = ctypes.c_void_p
LIB.run.argtypes = [P, P, P, ctypes.c_int, ctypes.c_float, P]


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        if features != 1024:
            raise ValueError("made for 1024 features")
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), x.numel() // 1024, self.eps, stream):
            raise RuntimeError("the kernel was not launched")
        return y
