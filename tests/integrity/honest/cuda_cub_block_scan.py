# task: tasks/cumsum.py
# device: cuda
# verdict: class custom
# says: CUB's block-wide scan inside a kernel of the program's own
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
#include <cub/block/block_scan.cuh>
#include <cuda_runtime.h>

constexpr int THREADS = 128, ITEMS = 4;

__global__ void scan_rows(const float* __restrict__ x, float* __restrict__ y, int columns) {
  using Scan = cub::BlockScan<float, THREADS>;
  __shared__ typename Scan::TempStorage storage;
  const float* in = x + (size_t)blockIdx.x * columns;
  float* out = y + (size_t)blockIdx.x * columns;
  float carry = 0.f;
  for (int at = 0; at < columns; at += THREADS * ITEMS) {
    float item[ITEMS], total;
    int first = at + threadIdx.x * ITEMS;
    for (int i = 0; i < ITEMS; i++) item[i] = first + i < columns ? in[first + i] : 0.f;
    Scan(storage).InclusiveSum(item, item, total);
    for (int i = 0; i < ITEMS; i++)
      if (first + i < columns) out[first + i] = carry + item[i];
    carry += total;
    __syncthreads();  // the storage is used again
  }
}

extern "C" int run(const float* x, float* y, int rows, int columns, void* stream) {
  scan_rows<<<rows, THREADS, 0, (cudaStream_t)stream>>>(x, y, columns);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
LIB.run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if LIB.run(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y
