# task: tasks/layer_norm.py
# device: cpu
# says: the mean first, then the variance around it, with several accumulators
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

extern "C" void layer_norm(const float* x, const float* w, const float* b, float* y, int64_t rows, int64_t n, float eps) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * n;
    float* out = y + r * n;
    float sums[16] = {};
    int64_t whole = n / 16 * 16;
    for (int64_t i = 0; i < whole; i += 16)
      for (int j = 0; j < 16; ++j) sums[j] += in[i + j];
    float mean = 0.f;
    for (int j = 0; j < 16; ++j) mean += sums[j];
    for (int64_t i = whole; i < n; ++i) mean += in[i];
    mean /= n;
    float squares[16] = {};
    for (int64_t i = 0; i < whole; i += 16)
      for (int j = 0; j < 16; ++j) squares[j] += (in[i + j] - mean) * (in[i + j] - mean);
    float variance = 0.f;
    for (int j = 0; j < 16; ++j) variance += squares[j];
    for (int64_t i = whole; i < n; ++i) variance += (in[i] - mean) * (in[i] - mean);
    const float scale = 1.f / std::sqrt(variance / n + eps);
    for (int64_t i = 0; i < n; ++i) out[i] = (in[i] - mean) * scale * w[i] + b[i];
  }
}
"""
LIB = stitch_build("cpp", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int64
LIB.layer_norm.argtypes = [P, P, P, P, N, N, ctypes.c_float]
LIB.layer_norm.restype = None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x, norm = x.contiguous(), self.norm
        y = torch.empty_like(x)
        LIB.layer_norm(x.data_ptr(), norm.weight.data_ptr(), norm.bias.data_ptr(), y.data_ptr(), *x.shape, norm.eps)
        return y
