# task: tasks/matmul.py
# device: cpu
# says: a blocked matrix product
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
#include <algorithm>
#include <cstdint>
#include <cstring>

// c (m, n) = a (m, k) b (k, n); four rows of c at a time, so that each row of b is read once for four
extern "C" void matmul(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
#pragma omp parallel for schedule(dynamic)
  for (int64_t first = 0; first < m; first += 4) {
    const int64_t rows = std::min<int64_t>(4, m - first);
    std::memset(c + first * n, 0, sizeof(float) * rows * n);
    for (int64_t begin = 0; begin < k; begin += 64) {
      const int64_t end = std::min(begin + 64, k);
      if (rows == 4) {
        float *c0 = c + first * n, *c1 = c0 + n, *c2 = c1 + n, *c3 = c2 + n;
        const float *a0 = a + first * k, *a1 = a0 + k, *a2 = a1 + k, *a3 = a2 + k;
        for (int64_t i = begin; i < end; ++i) {
          const float* row = b + i * n;
#pragma omp simd
          for (int64_t j = 0; j < n; ++j) {
            c0[j] += a0[i] * row[j];
            c1[j] += a1[i] * row[j];
            c2[j] += a2[i] * row[j];
            c3[j] += a3[i] * row[j];
          }
        }
      } else {
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = begin; i < end; ++i)
            for (int64_t j = 0; j < n; ++j) c[(first + r) * n + j] += a[(first + r) * k + i] * b[i * n + j];
      }
    }
  }
}
"""
LIB = stitch_build("cpp", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int64
LIB.matmul.argtypes = [P, P, P, N, N, N]
LIB.matmul.restype = None


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        x = x.contiguous()
        k, n = self.weight.shape
        y = torch.empty(x.shape[0], n)
        LIB.matmul(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), x.shape[0], n, k)
        return y
