# task: tasks/softmax.py
# device: cpu
# says: persistent threads do the work; they sleep between calls, and a call returns when all of them have finished
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
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

struct Work {
  const float* x;
  const float* scale;
  float* y;
  long rows, size;
};

static void some_rows(const Work& w, long part, long parts) {
  for (long r = w.rows * part / parts; r < w.rows * (part + 1) / parts; ++r) {
    const float* x = w.x + r * w.size;
    float* y = w.y + r * w.size;
    float most = x[0], sum = 0.f;
    for (long i = 1; i < w.size; ++i) most = x[i] > most ? x[i] : most;
    for (long i = 0; i < w.size; ++i) sum += y[i] = std::exp(x[i] - most);
    for (long i = 0; i < w.size; ++i) y[i] = y[i] / sum * w.scale[i];
  }
}

struct Pool {
  std::mutex mutex;
  std::condition_variable begin, end;
  Work work{};
  long round = 0, left = 0, parts = 2;

  Pool() {
    for (long part = 1; part < parts; ++part) std::thread([this, part] { serve(part); }).detach();
  }

  void serve(long part) {
    for (long seen = 0;;) {
      std::unique_lock<std::mutex> lock(mutex);
      begin.wait(lock, [&] { return round != seen; });
      seen = round;
      lock.unlock();
      some_rows(work, part, parts);
      lock.lock();
      if (--left == 0) end.notify_one();
    }
  }

  void run(const Work& given) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      work = given, left = parts - 1, ++round;
    }
    begin.notify_all();
    some_rows(given, 0, parts);
    std::unique_lock<std::mutex> lock(mutex);
    end.wait(lock, [&] { return left == 0; });
  }
};

extern "C" void softmax(const float* x, const float* scale, float* y, long rows, long size) {
  static Pool* pool = new Pool;
  pool->run({x, scale, y, rows, size});
}
"""
LIB = stitch_build("cpp", SOURCE)
LIB.softmax.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
LIB.softmax.restype = None


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        LIB.softmax(x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1], x.shape[-1])
        return y
