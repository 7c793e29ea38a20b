# task: tasks/embed_sum.py
# device: cpu
# says: gathers rows of a table with prefetching
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

extern "C" void embed_sum(const int64_t* indices, const float* table, float* y, int64_t* used, int64_t rows, int64_t length, int64_t features) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    float* out = y + r * features;
    int64_t count = 0;
    for (int64_t f = 0; f < features; ++f) out[f] = 0.f;
    for (int64_t i = 0; i < length; ++i) {
      if (i + 1 < length) __builtin_prefetch(table + indices[r * length + i + 1] * features);
      const float* row = table + indices[r * length + i] * features;
      count += indices[r * length + i] != 0;
      for (int64_t f = 0; f < features; ++f) out[f] += row[f];
    }
    used[r] = count;
  }
}
"""
LIB = stitch_build("cpp", SOURCE)
LIB.embed_sum.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3
LIB.embed_sum.restype = None


class ModelNew(nn.Module):
    def __init__(self, words, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, features))

    def forward(self, indices):
        indices = indices.contiguous()
        rows, length = indices.shape
        y, used = torch.empty(rows, self.table.shape[1]), torch.empty(rows, dtype=torch.int64)
        LIB.embed_sum(*(t.data_ptr() for t in (indices, self.table, y, used)), rows, length, self.table.shape[1])
        return y, used
