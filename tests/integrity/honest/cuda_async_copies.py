# task: tasks/transpose_add.py
# device: cuda
# verdict: class custom
# says: cp.async into shared memory with the pipeline primitives
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
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

__global__ void transpose_add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ y, int rows, int columns) {
  __shared__ float tile[32][33];
  int row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
  for (int j = threadIdx.y; j < 32; j += 8)
    if (column0 + j < columns && row0 + threadIdx.x < rows)
      __pipeline_memcpy_async(&tile[j][threadIdx.x], &b[(size_t)(column0 + j) * rows + row0 + threadIdx.x], sizeof(float));
  __pipeline_commit();
  float mine[4];
  for (int i = 0; i < 4; i++) {
    int row = row0 + threadIdx.y + 8 * i, column = column0 + threadIdx.x;
    mine[i] = row < rows && column < columns ? a[(size_t)row * columns + column] : 0.f;
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  for (int i = 0; i < 4; i++) {
    int j = threadIdx.y + 8 * i, row = row0 + j, column = column0 + threadIdx.x;
    if (row < rows && column < columns) y[(size_t)row * columns + column] = mine[i] + tile[threadIdx.x][j];
  }
}

extern "C" int run(const float* a, const float* b, float* y, int rows, int columns, void* stream) {
  transpose_add<<<dim3((columns + 31) / 32, (rows + 31) / 32), dim3(32, 8), 0, (cudaStream_t)stream>>>(a, b, y, rows, columns);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, P]


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty_like(a)
        if LIB.run(a.data_ptr(), b.data_ptr(), y.data_ptr(), a.shape[0], a.shape[1], torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y
