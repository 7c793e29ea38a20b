# task: tasks/mlp.py
# device: cuda
# says: the library's products in place of its linear layers, with kernels of the program's own for bias, relu and the residual
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

__global__ void bias_relu(float* __restrict__ y, const float* __restrict__ bias, int n, int columns) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = fmaxf(y[i] + bias[i % columns], 0.f);
}

__global__ void bias_residual(float* __restrict__ y, const float* __restrict__ bias, const float* __restrict__ x, int n, int columns) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += bias[i % columns] + x[i];
}

extern "C" int relu(float* y, const float* bias, int n, int columns, void* stream) {
  bias_relu<<<256, 256, 0, (cudaStream_t)stream>>>(y, bias, n, columns);
  return (int)cudaGetLastError();
}

extern "C" int residual(float* y, const float* bias, const float* x, int n, int columns, void* stream) {
  bias_residual<<<256, 256, 0, (cudaStream_t)stream>>>(y, bias, x, n, columns);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.relu.argtypes = [P, P, N, N, P]
LIB.residual.argtypes = [P, P, P, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, features)

    def forward(self, x):
        x = x.contiguous()
        stream = torch.cuda.current_stream().cuda_stream
        h = torch.mm(x, self.first.weight.t())
        failed = LIB.relu(h.data_ptr(), self.first.bias.data_ptr(), h.numel(), h.shape[1], stream)
        y = torch.mm(h, self.second.weight.t())
        failed |= LIB.residual(y.data_ptr(), self.second.bias.data_ptr(), x.data_ptr(), y.numel(), y.shape[1], stream)
        if failed:
            raise RuntimeError("a kernel was not launched")
        return y
