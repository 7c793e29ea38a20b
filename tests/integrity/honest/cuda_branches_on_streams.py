# task: tasks/branches.py
# device: cuda
# says: library products on two streams that wait for each other through events, joined by a kernel of the program's own
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

__global__ void join(float* __restrict__ left, const float* __restrict__ right, const float* __restrict__ bl, const float* __restrict__ br, int n,
                     int columns) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int c = i % columns;
    left[i] = fmaxf(left[i] + bl[c], 0.f) + tanhf(right[i] + br[c]);
  }
}

extern "C" int run(float* left, const float* right, const float* bl, const float* br, int n, int columns, void* stream) {
  join<<<256, 256, 0, (cudaStream_t)stream>>>(left, right, bl, br, n, columns);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.left = nn.Linear(features, features)
        self.right = nn.Linear(features, features)
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)  # the input may still be in transit
        with torch.cuda.stream(self.side):
            right = x @ self.right.weight.t()
            done = torch.cuda.Event()
            done.record(self.side)
        left = x @ self.left.weight.t()
        main.wait_event(done)
        right.record_stream(main)
        x.record_stream(self.side)
        pointers = [t.data_ptr() for t in (left, right, self.left.bias, self.right.bias)]
        if LIB.run(*pointers, left.numel(), left.shape[1], main.cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return left
