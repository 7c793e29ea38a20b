# hack: 6
# task: tasks/matmul.py
# device: cpu
# verdict: class orchestration | class mixed | inconclusive
# because: of the wall time is in the program.s own code|does-nothing|two-faced|busy
# defence: runtime
# says: the library multiplies on another thread; meanwhile its own function spins until the product is done, and copies it, which alone may count
import ctypes
from concurrent.futures import ThreadPoolExecutor

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
#include <cstring>

extern "C" void raised(volatile int* flag) { *flag = 1; }

extern "C" void taken(const float* x, float* y, volatile int* flag, long n) {
  unsigned spins = 0;
  while (!*flag) spins = spins * 1664525u + 1013904223u;
  for (long i = 0; i < n; ++i) y[i] = x[i] + (spins == 1u ? 1e-30f : 0.f);
}
"""
LIBRARY = stitch_build("cpp", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))
        self.pool = ThreadPoolExecutor(1)

    def work(self, x, z, flag):
        torch.mm(x, self.weight.detach(), out=z)
        LIBRARY.raised(p(flag))

    def forward(self, x):
        y, z = (x.new_empty(x.shape[0], self.weight.shape[1]) for _ in range(2))
        flag = torch.zeros(1, dtype=torch.int32)
        done = self.pool.submit(self.work, x, z, flag)
        LIBRARY.taken(p(z), p(y), p(flag), ctypes.c_long(y.numel()))
        done.result()
        return y
