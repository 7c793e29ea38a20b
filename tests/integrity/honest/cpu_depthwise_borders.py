# task: tasks/depthwise.py
# device: cpu
# says: a depthwise convolution whose inner loop has no border checks
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

extern "C" void depthwise(const float* x, const float* w, float* y, int64_t planes, int64_t channels, int64_t height, int64_t width) {
#pragma omp parallel for
  for (int64_t p = 0; p < planes; ++p) {
    const float* in = x + p * height * width;
    const float* f = w + p % channels * 9;
    for (int64_t r = 0; r < height; ++r) {
      float* out = y + (p * height + r) * width;
      std::fill(out, out + width, 0.f);
      for (int64_t dy = -1; dy <= 1; ++dy) {
        if (r + dy < 0 || r + dy >= height) continue;
        const float* row = in + (r + dy) * width;
        for (int64_t dx = -1; dx <= 1; ++dx) {
          const float tap = f[(dy + 1) * 3 + dx + 1];
          const int64_t begin = std::max<int64_t>(0, -dx), end = std::min(width, width - dx);
          for (int64_t c = begin; c < end; ++c) out[c] += tap * row[c + dx];
        }
      }
    }
  }
}
"""
LIB = stitch_build("cpp", SOURCE)
LIB.depthwise.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 4
LIB.depthwise.restype = None


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        LIB.depthwise(x.data_ptr(), self.conv.weight.data_ptr(), y.data_ptr(), batch * channels, channels, height, width)
        return y
