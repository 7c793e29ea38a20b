# task: tasks/ema_state.py
# device: cuda
# says: the running mean that the task keeps is updated by the kernel itself, and the count of calls by PyTorch
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

// one block for 32 columns, block (32, 8): mean over the rows, then the running mean, then the outputs of these columns
__global__ void centre(const float* __restrict__ x, float* __restrict__ average, const float* __restrict__ gain, float* __restrict__ y, int rows,
                       int columns, float momentum) {
  __shared__ float part[8][32];
  __shared__ float now[32];
  int column = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.f;
  if (column < columns)
    for (int r = threadIdx.y; r < rows; r += 8) sum += x[(size_t)r * columns + column];
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < columns) {
    for (int i = 1; i < 8; i++) sum += part[i][threadIdx.x];
    float moved = average[column] * (1.f - momentum) + momentum * (sum / rows);
    average[column] = moved;
    now[threadIdx.x] = moved;
  }
  __syncthreads();
  if (column < columns)
    for (int r = threadIdx.y; r < rows; r += 8) y[(size_t)r * columns + column] = (x[(size_t)r * columns + column] - now[threadIdx.x]) * gain[column];
}

extern "C" int run(const float* x, float* average, const float* gain, float* y, int rows, int columns, float momentum, void* stream) {
  centre<<<(columns + 31) / 32, dim3(32, 8), 0, (cudaStream_t)stream>>>(x, average, gain, y, rows, columns, momentum);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, N, N, ctypes.c_float, P]


class ModelNew(nn.Module):
    def __init__(self, features, momentum):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("average", torch.zeros(features))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = [t.data_ptr() for t in (x, self.average, self.gain, y)]
        if LIB.run(*pointers, x.shape[0], x.shape[1], self.momentum, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        self.calls += 1
        return y
