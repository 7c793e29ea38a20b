# task: tasks/gated_chain.py
# device: cpu
# says: C++ templates and lambdas, two kernels in one library
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
#include <cstddef>
#include <type_traits>

namespace pointwise {

template <typename Body>
void each(std::size_t n, Body body) {
  static_assert(std::is_invocable_v<Body, std::size_t>);
#pragma omp parallel for
  for (std::size_t i = 0; i < n; ++i) body(i);
}

template <typename T>
struct Sigmoid {
  T alpha;
  T operator()(T v) const { return T(1) / (T(1) + std::exp(-alpha * v)); }
};

}  // namespace pointwise

extern "C" void gates(const float* gate, float* y, std::size_t n, float alpha) {
  pointwise::Sigmoid<float> sigmoid{alpha};
  pointwise::each(n, [=](std::size_t i) { y[i] = sigmoid(gate[i]); });
}

extern "C" void combine(const float* x, float* y, std::size_t n, float shift) {
  pointwise::each(n, [=](std::size_t i) { y[i] = std::tanh(x[i] + shift) * y[i] + 0.5f * x[i]; });
}
"""
LIB = stitch_build("cpp", SOURCE)
LIB.gates.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float]
LIB.combine.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float]
LIB.gates.restype = LIB.combine.restype = None


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x, gate):
        x, gate = x.contiguous(), gate.contiguous()
        y = torch.empty_like(x)
        LIB.gates(gate.data_ptr(), y.data_ptr(), y.numel(), self.alpha)
        LIB.combine(x.data_ptr(), y.data_ptr(), y.numel(), self.shift.item())
        return y
