# task: tasks/matmul.py
# device: cuda
# verdict: class custom
# precision: tf32
# says: one TF32 product on tensor cores, if the policy allows it
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
#include <mma.h>

using namespace nvcuda;

__global__ void product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  int tile = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, across = n / 16;
  if (tile >= m / 16 * across) return;
  int row = tile / across * 16, column = tile % across * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.f);
  for (int i = 0; i < k; i += 8) {
    wmma::load_matrix_sync(left, a + (size_t)row * k + i, k);
    wmma::load_matrix_sync(right, b + (size_t)i * n + column, n);
#pragma unroll
    for (int j = 0; j < left.num_elements; j++) left.x[j] = wmma::__float_to_tf32(left.x[j]);
#pragma unroll
    for (int j = 0; j < right.num_elements; j++) right.x[j] = wmma::__float_to_tf32(right.x[j]);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(c + (size_t)row * n + column, sum, n, wmma::mem_row_major);
}

extern "C" int run(const float* a, const float* b, float* c, int m, int n, int k, void* stream) {
  if (m % 16 || n % 16 || k % 8) return -1;
  int tiles = (m / 16) * (n / 16);
  product<<<(tiles + 3) / 4, 128, 0, (cudaStream_t)stream>>>(a, b, c, m, n, k);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        x = x.contiguous()
        y = x.new_empty(x.shape[0], self.weight.shape[1])
        stream = torch.cuda.current_stream().cuda_stream
        status = LIB.run(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), x.shape[0], self.weight.shape[1], x.shape[1], stream)
        if status:
            raise RuntimeError(f"the kernel was not launched: {status}")
        return y
