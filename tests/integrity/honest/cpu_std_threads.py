# task: tasks/log_loss.py
# device: cpu
# says: std::thread instead of OpenMP, joined before the function returns
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
#include <thread>
#include <vector>

static void rows_of(const float* x, const int64_t* classes, float* loss, bool* right, int64_t begin, int64_t end, int64_t n) {
  for (int64_t r = begin; r < end; ++r) {
    const float* in = x + r * n;
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i)
      if (in[i] > in[best]) best = i;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(double(in[i]) - in[best]);
    loss[r] = float(std::log(sum) + in[best] - in[classes[r]]);
    right[r] = best == classes[r];
  }
}

extern "C" void log_loss(const float* x, const int64_t* classes, float* loss, bool* right, int64_t rows, int64_t n, int threads) {
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back(rows_of, x, classes, loss, right, rows * t / threads, rows * (t + 1) / threads, n);
  for (std::thread& worker : workers) worker.join();
}
"""
LIB = stitch_build("cpp", SOURCE, flags=("-pthread",))
LIB.log_loss.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2 + [ctypes.c_int]
LIB.log_loss.restype = None


class ModelNew(nn.Module):
    def forward(self, logits, classes):
        logits, classes = logits.contiguous(), classes.contiguous()
        loss, right = torch.empty(logits.shape[0]), torch.empty(logits.shape[0], dtype=torch.bool)
        LIB.log_loss(*(t.data_ptr() for t in (logits, classes, loss, right)), *logits.shape, torch.get_num_threads())
        return loss, right
