# task: tasks/variants.py
# device: cpu
# says: online softmax with the sum in double, any number of columns, and strided rows
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

// strides in elements
extern "C" void softmax(const float* x, float* y, int64_t rows, int64_t columns, int64_t row_step, int64_t column_step) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * row_step;
    float top = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < columns; ++i) {
      float v = in[i * column_step];
      if (v > top) {
        sum *= std::exp(double(top) - v);
        top = v;
      }
      sum += std::exp(double(v) - top);
    }
    for (int64_t i = 0; i < columns; ++i) y[r * columns + i] = float(std::exp(double(in[i * column_step]) - top) / sum);
  }
}
"""
LIB = stitch_build("cpp", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int64
LIB.softmax.argtypes = [P, P, N, N, N, N]
LIB.softmax.restype = None


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, dtype=x.dtype)
        LIB.softmax(x.data_ptr(), y.data_ptr(), *x.shape, *x.stride())
        return y
