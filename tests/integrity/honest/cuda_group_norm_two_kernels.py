# task: tasks/group_norm.py
# device: cuda
# verdict: class custom
# says: statistics in a first kernel, normalisation with silu in a second
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

// grid: batch * groups; the elements of a group lie together
__global__ void statistics(const float* __restrict__ x, float2* __restrict__ found, int elements, float eps) {
  __shared__ float part[8];
  __shared__ float mean_;
  const float* in = x + (size_t)blockIdx.x * elements;
  auto block_sum = [&](float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.f;
    for (int i = 0; i < 8; i++) v += part[i];
    return v;
  };
  float sum = 0.f;
  for (int i = threadIdx.x; i < elements; i += 256) sum += in[i];
  float mean = block_sum(sum) / elements, square = 0.f;
  for (int i = threadIdx.x; i < elements; i += 256) square += (in[i] - mean) * (in[i] - mean);
  square = block_sum(square) / elements;
  if (threadIdx.x == 0) {
    mean_ = mean;
    found[blockIdx.x] = make_float2(mean_, rsqrtf(square + eps));
  }
}

__global__ void normalise(const float* __restrict__ x, const float2* __restrict__ found, const float* __restrict__ w, const float* __restrict__ b,
                          float* __restrict__ y, int plane, int channels, int per_group) {
  int channel = blockIdx.y, sample = blockIdx.z;
  float2 s = found[sample * (channels / per_group) + channel / per_group];
  float scale = s.y * w[channel], shift = b[channel] - s.x * scale;
  size_t at = ((size_t)sample * channels + channel) * plane;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < plane; i += gridDim.x * blockDim.x) {
    float v = fmaf(x[at + i], scale, shift);
    y[at + i] = v / (1.f + expf(-v));
  }
}

extern "C" int run(const float* x, const float* w, const float* b, float* found, float* y, int batch, int channels, int plane, int groups, float eps,
                   void* stream) {
  cudaStream_t s = (cudaStream_t)stream;
  int per_group = channels / groups;
  statistics<<<batch * groups, 256, 0, s>>>(x, (float2*)found, per_group * plane, eps);
  normalise<<<dim3((plane + 255) / 256, channels, batch), 256, 0, s>>>(x, (const float2*)found, w, b, y, plane, channels, per_group);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, P, P, N, N, N, N, ctypes.c_float, P]


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = x.contiguous()
        batch, channels = x.shape[:2]
        plane = x[0, 0].numel()
        found = x.new_empty(batch * self.norm.num_groups, 2)
        y = torch.empty_like(x)
        pointers = [t.data_ptr() for t in (x, self.norm.weight, self.norm.bias, found, y)]
        stream = torch.cuda.current_stream().cuda_stream
        if LIB.run(*pointers, batch, channels, plane, self.norm.num_groups, self.norm.eps, stream):
            raise RuntimeError("a kernel was not launched")
        return y
