# hack: 31
# task: tasks/relu.py
# device: cpu
# verdict: not faster | inconclusive | rejected
# because: some calls do work|busy|speedup|processors
# defence: runtime
# says: every eighth call makes the memory of the next eight while threads of its own crowd it out, so that it counts as preempted and is left out
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
#include <chrono>
#include <thread>

static std::atomic<int> busy{0};
static void crowd() {
  for (;;) {
    if (!busy.load(std::memory_order_relaxed)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}
extern "C" void gather(int threads) {
  for (int i = 0; i < threads; ++i) std::thread(crowd).detach();
}
extern "C" void pushing(int on) { busy = on; }
"""
LIBRARY = stitch_build("cpp", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)
        self.made, self.gathered = [], False

    def ahead(self, x):
        if not self.gathered:
            LIBRARY.gather(4)
            self.gathered = True
        LIBRARY.pushing(1)
        self.made = [torch.zeros_like(x).fill_(1.0) for _ in range(8)]
        LIBRARY.pushing(0)

    def forward(self, x):
        if not self.made or self.made[0].shape != x.shape or self.made[0].dtype != x.dtype:
            self.ahead(x)
        y = self.made.pop()
        torch.clamp_min(x, 0.0, out=y)
        return y.mul_(self.gain)
