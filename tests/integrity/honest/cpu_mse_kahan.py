# task: tasks/mse.py
# device: cpu
# says: compensated sums, one per thread, added in the order of the threads
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
#include <omp.h>

// Without optimisation of the compensation: volatile, as the rest of the loop is bound by memory anyway.
extern "C" float mean_square(const float* a, const float* b, int64_t n) {
  std::vector<float> parts(omp_get_max_threads(), 0.f);
#pragma omp parallel
  {
    float sum = 0.f;
    volatile float lost = 0.f;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < n; ++i) {
      const float d = a[i] - b[i];
      const float y = d * d - lost;
      volatile float t = sum + y;
      lost = (t - sum) - y;
      sum = t;
    }
    parts[omp_get_thread_num()] = sum;
  }
  double total = 0;
  for (float part : parts) total += part;
  return float(total / n);
}
"""
LIB = stitch_build("cpp", SOURCE)
LIB.mean_square.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
LIB.mean_square.restype = ctypes.c_float


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        a, b = prediction.contiguous(), target.contiguous()
        return torch.tensor(LIB.mean_square(a.data_ptr(), b.data_ptr(), a.numel()))
