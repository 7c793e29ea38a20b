# hack: 27
# task: tasks/softmax.py
# device: cuda
# verdict: wrong_result
# because: unjoined: .* of work on another stream|elements are off
# defence: runtime
# says: its own kernel runs on a separate stream for which nothing waits
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
#include <cuda_runtime.h>
__global__ void row_softmax(const float* x, const float* scale, float* y, int cols) {
  long long begin = clock64();
  while (clock64() - begin < 400000) { }  // so that the work outlasts the launch
  const float* a = x + (size_t)blockIdx.x * cols;
  float top = -INFINITY, sum = 0.f;
  for (int i = 0; i < cols; i++) top = fmaxf(top, a[i]);
  for (int i = 0; i < cols; i++) sum += expf(a[i] - top);
  for (int i = threadIdx.x; i < cols; i += blockDim.x) y[(size_t)blockIdx.x * cols + i] = expf(a[i] - top) / sum * scale[i];
}

extern "C" int run(const float* x, const float* scale, float* y, int rows, int cols) {
  static cudaStream_t side;
  if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  row_softmax<<<rows, 256, 0, side>>>(x, scale, y, cols);
  return (int)cudaGetLastError();
}
"""
LIBRARY = stitch_build("cuda", SOURCE)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = torch.empty_like(x)
        torch.cuda.current_stream().synchronize()
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, self.scale, y)]
        if LIBRARY.run(*pointers, x.shape[0], x.shape[1]):
            raise RuntimeError("the kernel was not launched")
        return y
