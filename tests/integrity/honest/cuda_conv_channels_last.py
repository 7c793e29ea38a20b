# task: tasks/conv_relu.py
# device: cuda
# verdict: class custom
# says: works on channels-last memory internally and returns a tensor with channels-last strides
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

// x (batch, height, width, channels), w (3, 3, channels, outputs), y (batch, height, width, outputs); a block makes one pixel's outputs
__global__ void conv_nhwc(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b, float* __restrict__ y, int height,
                          int width, int channels, int outputs) {
  extern __shared__ float patch[];  // 9 * channels
  int column = blockIdx.x, row = blockIdx.y, sample = blockIdx.z;
  for (int i = threadIdx.x; i < 9 * channels; i += blockDim.x) {
    int tap = i / channels, c = i % channels;
    int r = row + tap / 3 - 1, q = column + tap % 3 - 1;
    patch[i] = r >= 0 && r < height && q >= 0 && q < width ? x[(((size_t)sample * height + r) * width + q) * channels + c] : 0.f;
  }
  __syncthreads();
  for (int o = threadIdx.x; o < outputs; o += blockDim.x) {
    float sum = b[o];
    for (int i = 0; i < 9 * channels; i++) sum = fmaf(patch[i], w[(size_t)i * outputs + o], sum);
    y[(((size_t)sample * height + row) * width + column) * outputs + o] = fmaxf(sum, 0.f);
  }
}

extern "C" int run(const float* x, const float* w, const float* b, float* y, int batch, int height, int width, int channels, int outputs,
                   void* stream) {
  conv_nhwc<<<dim3(width, height, batch), 32, 9 * channels * sizeof(float), (cudaStream_t)stream>>>(x, w, b, y, height, width, channels, outputs);
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
        self._packed = (None, None)

    def _filters(self):
        weight = self.conv.weight
        key = (weight.data_ptr(), weight._version)
        if self._packed[0] != key:
            self._packed = (key, weight.detach().permute(2, 3, 1, 0).contiguous())
        return self._packed[1]

    def forward(self, x):
        batch, channels, height, width = x.shape
        x = x.contiguous(memory_format=torch.channels_last)
        y = torch.empty(batch, self.conv.out_channels, height, width, device=x.device, memory_format=torch.channels_last)
        w = self._filters()
        pointers = [t.data_ptr() for t in (x, w, self.conv.bias, y)]
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(*pointers, batch, height, width, channels, self.conv.out_channels, stream):
            raise RuntimeError("the kernel was not launched")
        return y
