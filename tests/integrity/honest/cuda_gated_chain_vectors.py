# task: tasks/gated_chain.py
# device: cuda
# verdict: class custom
# says: one fused kernel, four elements per thread, with a scalar tail
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

__device__ __forceinline__ float gated(float x, float gate, float alpha, float shift) {
  return tanhf(x + shift) / (1.f + expf(-alpha * gate)) + 0.5f * x;
}

__global__ void chain(const float* __restrict__ x, const float* __restrict__ gate, const float* __restrict__ shift, float* __restrict__ y,
                      long long n, float alpha) {
  long long step = (long long)gridDim.x * blockDim.x;
  long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  float s = *shift;
  for (long long i = first; i < n / 4; i += step) {
    float4 a = reinterpret_cast<const float4*>(x)[i];
    float4 g = reinterpret_cast<const float4*>(gate)[i];
    a.x = gated(a.x, g.x, alpha, s);
    a.y = gated(a.y, g.y, alpha, s);
    a.z = gated(a.z, g.z, alpha, s);
    a.w = gated(a.w, g.w, alpha, s);
    reinterpret_cast<float4*>(y)[i] = a;
  }
  for (long long i = n / 4 * 4 + first; i < n; i += step) y[i] = gated(x[i], gate[i], alpha, s);
}

extern "C" int run(const float* x, const float* gate, const float* shift, float* y, long long n, float alpha, void* stream) {
  chain<<<1024, 256, 0, (cudaStream_t)stream>>>(x, gate, shift, y, n, alpha);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P = ctypes.c_void_p
LIB.run.argtypes = [P, P, P, P, ctypes.c_longlong, ctypes.c_float, P]


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x, gate):
        x, gate = x.contiguous(), gate.contiguous()
        y = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(x.data_ptr(), gate.data_ptr(), self.shift.data_ptr(), y.data_ptr(), x.numel(), self.alpha, stream):
            raise RuntimeError("the kernel was not launched")
        return y
