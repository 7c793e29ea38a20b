# task: tasks/relu.py
# device: cpu
# says: a function that spins until a thread of its own has done the other half of the work
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
#include <atomic>
#include <thread>

static void part(const float* x, const float* gain, float* y, long from, long to, long columns) {
  for (long row = from; row < to; ++row)
    for (long i = 0; i < columns; ++i) {
      const float v = x[row * columns + i];
      y[row * columns + i] = (v < 0.f ? 0.f : v) * gain[i];
    }
}

extern "C" void gained(const float* x, const float* gain, float* y, long rows, long columns) {
  std::atomic<int> done{0};
  std::thread other([&] {
    part(x, gain, y, rows / 2, rows, columns);
    done.store(1, std::memory_order_release);
  });
  part(x, gain, y, 0, rows / 2, columns);
  while (!done.load(std::memory_order_acquire)) {
  }
  other.join();
}
"""
LIBRARY = stitch_build("cpp", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        LIBRARY.gained(p(x), p(self.gain), p(y), ctypes.c_long(x.numel() // x.shape[-1]), ctypes.c_long(x.shape[-1]))
        return y
