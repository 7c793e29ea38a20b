# task: tasks/relu.py
# device: cpu
# says: a persistent workspace, a clone of which is returned; weights packed in the first call and after each change; functions cached by shape
import ctypes
from functools import cache

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
extern "C" void gained(const float* x, const double* gain, float* y, long rows, long size) {
  for (long r = 0; r < rows; ++r)
    for (long i = 0; i < size; ++i) {
      const float v = x[r * size + i];
      y[r * size + i] = v < 0.f ? 0.f : float(v * gain[i]);
    }
}
"""
LIB = stitch_build("cpp", SOURCE)
LIB.gained.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
LIB.gained.restype = None


@cache
def function(rows, size):
    return lambda x, gain, y: LIB.gained(x.data_ptr(), gain.data_ptr(), y.data_ptr(), rows, size)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)
        self.packed, self.version, self.workspace = None, None, None

    def forward(self, x):
        x = x.contiguous()
        if self.version != (self.gain.data_ptr(), self.gain._version):
            self.packed, self.version = self.gain.detach().double(), (self.gain.data_ptr(), self.gain._version)
        if self.workspace is None or self.workspace.shape != x.shape:
            self.workspace = torch.empty_like(x)
        function(x.numel() // x.shape[-1], x.shape[-1])(x, self.packed, self.workspace)
        return self.workspace.clone()
