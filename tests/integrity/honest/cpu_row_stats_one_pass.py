# task: tasks/row_stats.py
# device: cpu
# says: five statistics of a row, computed while the row is in the cache
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
#include <cstdint>

extern "C" void row_stats(const float* x, float* mean, float* variance, float* low, float* high, int64_t* at, int64_t rows, int64_t n) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * n;
    double sum = 0;
    float least = in[0], most = in[0];
    int64_t place = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += in[i];
      if (in[i] < least) least = in[i];
      if (in[i] > most) { most = in[i]; place = i; }
    }
    const double average = sum / n;
    double square = 0;
    for (int64_t i = 0; i < n; ++i) square += (in[i] - average) * (in[i] - average);
    mean[r] = float(average);
    variance[r] = float(square / n);
    low[r] = least;
    high[r] = most;
    at[r] = place;
  }
}
"""
LIB = stitch_build("cpp", SOURCE)
LIB.row_stats.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int64] * 2
LIB.row_stats.restype = None


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows = x.shape[0]
        names = ("mean", "variance", "low", "high")
        found = {name: torch.empty(rows) for name in names} | {"at": torch.empty(rows, dtype=torch.int64)}
        LIB.row_stats(x.data_ptr(), *(found[name].data_ptr() for name in (*names, "at")), *x.shape)
        return found
