# task: tasks/gated_chain.py
# device: cuda
# verdict: class custom
# precision: bf16
# says: bfloat16 pairs in and out, arithmetic in fp32
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
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__device__ __forceinline__ float gated(float x, float gate, float alpha, float shift) {
  return tanhf(x + shift) / (1.f + expf(-alpha * gate)) + 0.5f * x;
}

__global__ void chain(const __nv_bfloat162* __restrict__ x, const __nv_bfloat162* __restrict__ gate, const __nv_bfloat16* __restrict__ shift,
                      __nv_bfloat162* __restrict__ y, int pairs, float alpha) {
  float s = __bfloat162float(*shift);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * blockDim.x) {
    float2 a = __bfloat1622float2(x[i]), g = __bfloat1622float2(gate[i]);
    y[i] = __floats2bfloat162_rn(gated(a.x, g.x, alpha, s), gated(a.y, g.y, alpha, s));
  }
}

// the number of elements is even
extern "C" int run(const void* x, const void* gate, const void* shift, void* y, int elements, float alpha, void* stream) {
  chain<<<512, 256, 0, (cudaStream_t)stream>>>((const __nv_bfloat162*)x, (const __nv_bfloat162*)gate, (const __nv_bfloat16*)shift, (__nv_bfloat162*)y,
                                              elements / 2, alpha);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P = ctypes.c_void_p
LIB.run.argtypes = [P, P, P, P, ctypes.c_int, ctypes.c_float, P]


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x, gate):
        if x.dtype != torch.bfloat16 or x.numel() % 2:
            raise TypeError("made for an even number of bfloat16")
        x, gate = x.contiguous(), gate.contiguous()
        y = torch.empty_like(x)
        pointers = [t.data_ptr() for t in (x, gate, self.shift, y)]
        if LIB.run(*pointers, x.numel(), self.alpha, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y
