# task: tasks/across.py
# device: cuda
# verdict: class custom
# says: the input is not contiguous; the kernel takes its strides and writes the output in the same memory order
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

// element (r, c) of x lies at r * sr + c * sc; y has the same strides. Threads follow the dimension that is dense.
__global__ void silu(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ y, int rows, int columns, long long sr,
                     long long sc, bool rows_are_dense) {
  int inner = blockIdx.x * blockDim.x + threadIdx.x, outer = blockIdx.y;
  int r = rows_are_dense ? inner : outer, c = rows_are_dense ? outer : inner;
  if (r >= rows || c >= columns) return;
  long long at = r * sr + c * sc;
  float v = x[at] + bias[c];
  y[at] = v / (1.f + expf(-v));
}

extern "C" int run(const float* x, const float* bias, float* y, int rows, int columns, long long sr, long long sc, void* stream) {
  bool dense_rows = sr == 1;
  int inner = dense_rows ? rows : columns, outer = dense_rows ? columns : rows;
  silu<<<dim3((inner + 127) / 128, outer), 128, 0, (cudaStream_t)stream>>>(x, bias, y, rows, columns, sr, sc, dense_rows);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
LIB.run.argtypes = [P, P, P, N, N, L, L, P]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        y = torch.empty_like(x)  # keeps the strides of a dense tensor
        if x.stride() != y.stride():
            x = x.contiguous()
            y = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(x.data_ptr(), self.bias.data_ptr(), y.data_ptr(), *x.shape, *x.stride(), stream):
            raise RuntimeError("the kernel was not launched")
        return y
