# task: tasks/histogram.py
# device: cpu
# says: one histogram per thread, merged at the end; integer and boolean outputs
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
#include <vector>

extern "C" void histogram(const int64_t* values, int64_t* counts, bool* high, int32_t* parity, int64_t n, int64_t bins) {
  for (int64_t i = 0; i < bins; ++i) counts[i] = 0;
#pragma omp parallel
  {
    std::vector<int64_t> mine(bins, 0);
#pragma omp for nowait
    for (int64_t i = 0; i < n; ++i) {
      ++mine[values[i]];
      parity[i] = int32_t(values[i] % 2);
    }
#pragma omp critical
    for (int64_t i = 0; i < bins; ++i) counts[i] += mine[i];
  }
  const float mean = float(n) / bins;
  for (int64_t i = 0; i < bins; ++i) high[i] = counts[i] > mean;
}
"""
LIB = stitch_build("cpp", SOURCE)
LIB.histogram.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2
LIB.histogram.restype = None


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, values):
        values = values.contiguous()
        counts, high = torch.empty(self.bins, dtype=torch.int64), torch.empty(self.bins, dtype=torch.bool)
        parity = torch.empty(values.shape, dtype=torch.int32)
        LIB.histogram(*(t.data_ptr() for t in (values, counts, high, parity)), values.numel(), self.bins)
        return counts, high, parity
