# task: tasks/depthwise.py
# device: cuda
# verdict: class custom
# says: a tile with its halo in shared memory
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

constexpr int W = 32, H = 8;

// grid (width / 32, height / 8, batch * channels), block (32, 8)
__global__ void depthwise(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int channels, int height, int width) {
  __shared__ float tile[H + 2][W + 2];
  size_t plane = (size_t)blockIdx.z * height * width;
  int left = blockIdx.x * W - 1, top = blockIdx.y * H - 1;
  for (int i = threadIdx.y * W + threadIdx.x; i < (H + 2) * (W + 2); i += W * H) {
    int r = top + i / (W + 2), q = left + i % (W + 2);
    tile[i / (W + 2)][i % (W + 2)] = r >= 0 && r < height && q >= 0 && q < width ? x[plane + r * width + q] : 0.f;
  }
  const float* filter = w + blockIdx.z % channels * 9;
  __syncthreads();
  int column = blockIdx.x * W + threadIdx.x, row = blockIdx.y * H + threadIdx.y;
  if (column >= width || row >= height) return;
  float sum = 0.f;
#pragma unroll
  for (int dy = 0; dy < 3; dy++)
#pragma unroll
    for (int dx = 0; dx < 3; dx++) sum = fmaf(tile[threadIdx.y + dy][threadIdx.x + dx], filter[dy * 3 + dx], sum);
  y[plane + row * width + column] = sum;
}

extern "C" int run(const float* x, const float* w, float* y, int batch, int channels, int height, int width, void* stream) {
  dim3 grid((width + W - 1) / W, (height + H - 1) / H, batch * channels);
  depthwise<<<grid, dim3(W, H), 0, (cudaStream_t)stream>>>(x, w, y, channels, height, width);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if LIB.run(x.data_ptr(), self.conv.weight.data_ptr(), y.data_ptr(), *x.shape, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("the kernel was not launched")
        return y
