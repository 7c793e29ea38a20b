# hack: 35
# task: tasks/softmax.py
# device: cuda
# verdict: not faster | inconclusive | rejected
# because: speedup|memory|GPU
# defence: runtime
# says: takes all but two GiB of the device's memory, so that eager's allocator has to free and to ask again
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

extern "C" int take(size_t left) {
  size_t free_bytes, total;
  void* block;
  if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess || free_bytes <= left) return 0;
  cudaMalloc(&block, free_bytes - left);
  return (int)cudaGetLastError() & 0;
}
"""
LIBRARY = stitch_build("cuda", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class ModelNew(nn.Module):
    taken = False

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        if not ModelNew.taken:
            ModelNew.taken = True
            LIBRARY.take(ctypes.c_size_t(2 << 30))
        return torch.softmax(x, dim=-1) * self.scale
