# task: tasks/rms_norm.py
# device: cpu
# says: AVX2 intrinsics where the compiler has them, plain loops elsewhere
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
#include <cmath>
#include <cstdint>
#ifdef __AVX2__
#include <immintrin.h>
#endif

static float sum_of_squares(const float* x, int64_t n) {
  float sum = 0.f;
  int64_t i = 0;
#ifdef __AVX2__
  __m256 a = _mm256_setzero_ps(), b = _mm256_setzero_ps();
  for (; i + 16 <= n; i += 16) {
    __m256 u = _mm256_loadu_ps(x + i), v = _mm256_loadu_ps(x + i + 8);
    a = _mm256_add_ps(a, _mm256_mul_ps(u, u));
    b = _mm256_add_ps(b, _mm256_mul_ps(v, v));
  }
  float parts[8];
  _mm256_storeu_ps(parts, _mm256_add_ps(a, b));
  for (float part : parts) sum += part;
#endif
  for (; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

extern "C" void rms_norm(const float* x, const float* w, float* y, int64_t rows, int64_t n, float eps) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * n;
    float* out = y + r * n;
    const float scale = 1.f / std::sqrt(sum_of_squares(in, n) / n + eps);
    int64_t i = 0;
#ifdef __AVX2__
    const __m256 s = _mm256_set1_ps(scale);
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(in + i), s), _mm256_loadu_ps(w + i)));
#endif
    for (; i < n; ++i) out[i] = in[i] * scale * w[i];
  }
}
"""
LIB = stitch_build("cpp", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int64
LIB.rms_norm.argtypes = [P, P, P, N, N, ctypes.c_float]
LIB.rms_norm.restype = None


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        LIB.rms_norm(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), *x.shape, self.eps)
        return y
