# task: tasks/attention.py
# device: cpu
# says: causal attention, one query at a time; the scores never leave the stack
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
#include <vector>

extern "C" void attention(const float* q, const float* k, const float* v, float* y, int64_t heads, int64_t length, int64_t features) {
  const float scale = 1.f / std::sqrt(float(features));
#pragma omp parallel for collapse(2)
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < length; ++i) {
      std::vector<float> score(i + 1);
      const float* query = q + (h * length + i) * features;
      float top = -INFINITY, sum = 0.f;
      for (int64_t j = 0; j <= i; ++j) {
        float s = 0.f;
        for (int64_t f = 0; f < features; ++f) s += query[f] * k[(h * length + j) * features + f];
        score[j] = s * scale;
        top = std::fmax(top, score[j]);
      }
      for (float& s : score) sum += s = std::exp(s - top);
      float* out = y + (h * length + i) * features;
      for (int64_t f = 0; f < features; ++f) out[f] = 0.f;
      for (int64_t j = 0; j <= i; ++j)
        for (int64_t f = 0; f < features; ++f) out[f] += score[j] / sum * v[(h * length + j) * features + f];
    }
}
"""
LIB = stitch_build("cpp", SOURCE)
LIB.attention.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3
LIB.attention.restype = None


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = (t.contiguous() for t in (q, k, v))
        y = torch.empty_like(q)
        batch, heads, length, features = q.shape
        LIB.attention(*(t.data_ptr() for t in (q, k, v, y)), batch * heads, length, features)
        return y
