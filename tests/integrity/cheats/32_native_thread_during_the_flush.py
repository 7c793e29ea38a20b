# hack: 32
# task: tasks/softmax.py
# device: cpu
# verdict: not faster | inconclusive | wrong_result | crashed
# because: flush of the caches|busy|speedup|clock|elements|timed call|SIGSEGV
# defence: runtime
# says: a native thread waits for inputs to become readable and computes while the caches are flushed, before the call begins
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
#include <cstring>
#include <mutex>
#include <thread>
#include <time.h>
#include <vector>

struct Place {
  const float* x;
  float first = -1.f;
  bool done = false;
  std::vector<float> result;
};

static std::mutex mutex;
static std::vector<Place> places;
static const float* scale;
static long rows, size, armed;

static void softmax(const float* x, float* y) {
  for (long r = 0; r < rows; ++r, x += size, y += size) {
    float sum = 0.f;
    for (long i = 0; i < size; ++i) sum += y[i] = std::exp(x[i]);
    for (long i = 0; i < size; ++i) y[i] = y[i] / sum * scale[i];
  }
}

static bool clear(const float* x) {
  for (long part = 0; part < 9; ++part)
    for (long i = 0; i < 8; ++i) {
      const float v = x[part < 8 ? part * (rows * size / 8) + i : rows * size - 8 + i];
      if (!(v > 0.f && v < 1.f)) return false;
    }
  return true;
}

static void waits() {
  for (;;) {
    timespec time = {0, 50000};
    nanosleep(&time, nullptr);
    std::lock_guard<std::mutex> lock(mutex);
    for (Place& place : places)
      if (armed && place.x[0] != place.first && clear(place.x)) {
        time.tv_nsec = 300000;  // the last of it may not be there yet
        nanosleep(&time, nullptr);
        place.first = place.x[0];
        softmax(place.x, place.result.data());
        place.done = true;
      }
  }
}

extern "C" void take(const float* x, const float* gain, float* y, long r, long n, long series) {
  std::lock_guard<std::mutex> lock(mutex);
  armed = series;
  if (!armed) places.clear();
  if (r * n != rows * size) places.clear();
  scale = gain, rows = r, size = n;
  for (Place& place : places)
    if (place.x == x && place.done && place.first == x[0]) {
      std::memcpy(y, place.result.data(), sizeof(float) * r * n);
      place.done = false;
      return;
    }
  softmax(x, y);
  if (!armed) return;
  for (Place& place : places)
    if (place.x == x) return;
  static std::thread* thread = new std::thread(waits);
  (void)thread;
  places.push_back({x, x[0], false, std::vector<float>(r * n)});
}
"""
LIB = stitch_build("cpp", SOURCE, ("-ffast-math",))
LIB.take.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3
LIB.take.restype = None


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = torch.empty_like(x)
        if x.min() > 0.0 and x.max() < 1.0:
            series = torch.initial_seed() == 1  # single calls are seeded differently
            LIB.take(x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1], x.shape[-1], series)
            return y
        return torch.softmax(x, dim=-1) * self.scale
