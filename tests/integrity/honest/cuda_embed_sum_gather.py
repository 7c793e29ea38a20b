# task: tasks/embed_sum.py
# device: cuda
# verdict: class custom
# says: integer inputs; a block gathers the rows of a table and adds them
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

__global__ void gather_sum(const long long* __restrict__ indices, const float* __restrict__ table, float* __restrict__ y,
                           long long* __restrict__ used, int length, int features) {
  const long long* row = indices + (size_t)blockIdx.x * length;
  for (int f = threadIdx.x; f < features; f += blockDim.x) {
    float sum = 0.f;
    for (int i = 0; i < length; i++) sum += table[row[i] * features + f];
    y[(size_t)blockIdx.x * features + f] = sum;
  }
  if (threadIdx.x == 0) {
    long long count = 0;
    for (int i = 0; i < length; i++) count += row[i] != 0;
    used[blockIdx.x] = count;
  }
}

extern "C" int run(const long long* indices, const float* table, float* y, long long* used, int rows, int length, int features, void* stream) {
  gather_sum<<<rows, 128, 0, (cudaStream_t)stream>>>(indices, table, y, used, length, features);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, N, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, words, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, features))

    def forward(self, indices):
        indices = indices.contiguous()
        rows, length = indices.shape
        y = torch.empty(rows, self.table.shape[1], device=indices.device)
        used = torch.empty(rows, dtype=torch.int64, device=indices.device)
        pointers = [t.data_ptr() for t in (indices, self.table, y, used)]
        if LIB.run(*pointers, rows, length, self.table.shape[1], torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y, used
