# task: tasks/masked_mean.py
# device: cuda
# verdict: class custom
# says: a boolean mask is counted with ballots, and masked positions are never loaded
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

// one block a batch entry, a thread a feature
__global__ void masked_mean(const float* __restrict__ x, const bool* __restrict__ mask, float* __restrict__ y, int length, int features) {
  const float* in = x + (size_t)blockIdx.x * length * features;
  const bool* kept = mask + (size_t)blockIdx.x * length;
  int lane = threadIdx.x % 32, count = 0;
  float sum = 0.f;
  for (int at = 0; at < length; at += 32) {
    unsigned bits = __ballot_sync(~0u, at + lane < length && kept[at + lane]);
    count += __popc(bits);
    while (bits) {
      int i = __ffs(bits) - 1;
      bits &= bits - 1;
      if (threadIdx.x < features) sum += in[(size_t)(at + i) * features + threadIdx.x];
    }
  }
  if (threadIdx.x < features) y[(size_t)blockIdx.x * features + threadIdx.x] = sum / max(count, 1);
}

extern "C" int run(const float* x, const bool* mask, float* y, int batch, int length, int features, void* stream) {
  masked_mean<<<batch, (features + 31) / 32 * 32, 0, (cudaStream_t)stream>>>(x, mask, y, length, features);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, N, P]


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        if x.shape[2] > 1024:
            raise ValueError("at most 1024 features")
        y = x.new_empty(x.shape[0], x.shape[2])
        if LIB.run(x.data_ptr(), mask.data_ptr(), y.data_ptr(), *x.shape, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y
