# task: tasks/conv_relu.py
# device: cuda
# verdict: class custom
# says: the filters are copied to constant memory before each launch, so new weights are never missed
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

__constant__ float filters[64 * 1024 / 4 - 256];
__constant__ float offsets[256];

// grid (pixels / 256, outputs / 4, batch): each thread makes four channels of one pixel
__global__ void conv3x3(const float* __restrict__ x, float* __restrict__ y, int channels, int outputs, int height, int width) {
  int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel >= height * width) return;
  int row = pixel / width, column = pixel % width, first = blockIdx.y * 4;
  float sum[4];
  for (int j = 0; j < 4; j++) sum[j] = offsets[first + j];
  for (int c = 0; c < channels; c++) {
    const float* plane = x + ((size_t)blockIdx.z * channels + c) * height * width;
    for (int dy = -1; dy <= 1; dy++)
      for (int dx = -1; dx <= 1; dx++) {
        int r = row + dy, q = column + dx;
        float v = r >= 0 && r < height && q >= 0 && q < width ? plane[r * width + q] : 0.f;
        int tap = (dy + 1) * 3 + dx + 1;
        for (int j = 0; j < 4; j++) sum[j] = fmaf(v, filters[((first + j) * channels + c) * 9 + tap], sum[j]);
      }
  }
  for (int j = 0; j < 4; j++) y[((size_t)blockIdx.z * outputs + first + j) * height * width + pixel] = fmaxf(sum[j], 0.f);
}

extern "C" int run(const float* x, const float* w, const float* b, float* y, int batch, int channels, int outputs, int height, int width,
                   void* stream) {
  cudaStream_t s = (cudaStream_t)stream;
  size_t bytes = (size_t)outputs * channels * 9 * sizeof(float);
  if (bytes > sizeof(filters) || outputs > 256 || outputs % 4) return -1;
  cudaMemcpyToSymbolAsync(filters, w, bytes, 0, cudaMemcpyDeviceToDevice, s);
  cudaMemcpyToSymbolAsync(offsets, b, outputs * sizeof(float), 0, cudaMemcpyDeviceToDevice, s);
  conv3x3<<<dim3((height * width + 255) / 256, outputs / 4, batch), 256, 0, s>>>(x, y, channels, outputs, height, width);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, N, N, N, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 3, padding=1)

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        y = x.new_empty(batch, self.conv.out_channels, height, width)
        pointers = [t.data_ptr() for t in (x, self.conv.weight, self.conv.bias, y)]
        status = LIB.run(*pointers, batch, channels, self.conv.out_channels, height, width, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the convolution was not started: {status}")
        return y
