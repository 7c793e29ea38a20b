# task: tasks/log_loss.py
# device: cuda
# verdict: class custom
# says: log-sum-exp, gather and comparison in one kernel; floating-point and boolean outputs
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

struct Best {
  float value;
  int at;
};

__device__ Best better(Best a, Best b) { return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a; }

// a warp a row
__global__ void log_loss(const float* __restrict__ logits, const long long* __restrict__ classes, float* __restrict__ loss, bool* __restrict__ right,
                         int rows, int columns) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* in = logits + (size_t)row * columns;
  Best best = {-INFINITY, columns};
  for (int i = lane; i < columns; i += 32) best = better(best, {in[i], i});
  for (int o = 16; o; o >>= 1) best = better(best, {__shfl_xor_sync(~0u, best.value, o), __shfl_xor_sync(~0u, best.at, o)});
  float sum = 0.f;
  for (int i = lane; i < columns; i += 32) sum += expf(in[i] - best.value);
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (lane == 0) {
    long long wanted = classes[row];
    loss[row] = best.value + logf(sum) - in[wanted];
    right[row] = best.at == wanted;
  }
}

extern "C" int run(const float* logits, const long long* classes, float* loss, bool* right, int rows, int columns, void* stream) {
  log_loss<<<(rows * 32 + 127) / 128, 128, 0, (cudaStream_t)stream>>>(logits, classes, loss, right, rows, columns);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, N, N, P]


class ModelNew(nn.Module):
    def forward(self, logits, classes):
        logits, classes = logits.contiguous(), classes.contiguous()
        rows, columns = logits.shape
        loss = logits.new_empty(rows)
        right = torch.empty(rows, dtype=torch.bool, device=logits.device)
        pointers = [t.data_ptr() for t in (logits, classes, loss, right)]
        if LIB.run(*pointers, rows, columns, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return loss, right
