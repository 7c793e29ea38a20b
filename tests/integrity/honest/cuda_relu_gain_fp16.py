# task: tasks/relu.py
# device: cuda
# verdict: class custom
# precision: fp16
# says: half2 intrinsics: eight halves per thread with one 16-byte load
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
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// columns are a multiple of 8
__global__ void relu_gain(const uint4* __restrict__ x, const uint4* __restrict__ gain, uint4* __restrict__ y, int columns8, int vectors) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= vectors) return;
  uint4 a = x[i], g = gain[i % columns8];
  __half2* left = reinterpret_cast<__half2*>(&a);
  const __half2* right = reinterpret_cast<const __half2*>(&g);
  const __half2 zero = __float2half2_rn(0.f);
#pragma unroll
  for (int j = 0; j < 4; j++) left[j] = __hmul2(__hmax2(left[j], zero), right[j]);
  y[i] = a;
}

extern "C" int run(const void* x, const void* gain, void* y, int rows, int columns, void* stream) {
  int vectors = rows * columns / 8;
  relu_gain<<<(vectors + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const uint4*)x, (const uint4*)gain, (uint4*)y, columns / 8, vectors);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        if x.dtype != torch.float16 or x.shape[1] % 8:
            raise TypeError("made for float16 with a multiple of eight columns")
        x = x.contiguous()
        y = torch.empty_like(x)
        if LIB.run(x.data_ptr(), self.gain.data_ptr(), y.data_ptr(), *x.shape, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y
