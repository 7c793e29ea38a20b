# task: tasks/matmul.py
# device: cuda
# verdict: class custom
# precision: bf16
# says: the mma.sync instruction in inline PTX, with its own fragment loads
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
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>

__device__ uint32_t pair(const __nv_bfloat16* low, const __nv_bfloat16* high) {
  return (uint32_t)__bfloat16_as_ushort(*low) | (uint32_t)__bfloat16_as_ushort(*high) << 16;
}

// A warp makes 16 x 8 results by mma.m16n8k16: lane = 4 * group + thread; a's rows are group and group + 8, b's and c's columns follow the lane.
__global__ void product(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b, __nv_bfloat16* __restrict__ c, int m, int n,
                        int k) {
  int tile = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, across = n / 8;
  if (tile >= m / 16 * across) return;
  int row = tile / across * 16, column = tile % across * 8;
  int group = threadIdx.x % 32 / 4, thread = threadIdx.x % 4;
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
  const __nv_bfloat16* upper = a + (size_t)(row + group) * k;
  const __nv_bfloat16* lower = upper + (size_t)8 * k;
  for (int at = 0; at < k; at += 16) {
    int i = at + 2 * thread;
    uint32_t a0 = pair(upper + i, upper + i + 1), a1 = pair(lower + i, lower + i + 1);
    uint32_t a2 = pair(upper + i + 8, upper + i + 9), a3 = pair(lower + i + 8, lower + i + 9);
    const __nv_bfloat16* right = b + (size_t)i * n + column + group;
    uint32_t b0 = pair(right, right + n), b1 = pair(right + (size_t)8 * n, right + (size_t)9 * n);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  __nv_bfloat16* out = c + (size_t)(row + group) * n + column + 2 * thread;
  out[0] = __float2bfloat16(sum[0]);
  out[1] = __float2bfloat16(sum[1]);
  out[(size_t)8 * n] = __float2bfloat16(sum[2]);
  out[(size_t)8 * n + 1] = __float2bfloat16(sum[3]);
}

extern "C" int run(const void* a, const void* b, void* c, int m, int n, int k, void* stream) {
  if (m % 16 || n % 8 || k % 16) return -1;
  int tiles = (m / 16) * (n / 8);
  product<<<(tiles + 3) / 4, 128, 0, (cudaStream_t)stream>>>((const __nv_bfloat16*)a, (const __nv_bfloat16*)b, (__nv_bfloat16*)c, m, n, k);
  return (int)cudaGetLastError();
}
"""
LIB = stitch_build("cuda", SOURCE)
P, N = ctypes.c_void_p, ctypes.c_int
LIB.run.argtypes = [P, P, P, N, N, N, P]


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        if x.dtype != torch.bfloat16:
            raise TypeError("made for bfloat16")
        x = x.contiguous()
        y = x.new_empty(x.shape[0], self.weight.shape[1])
        stream = torch.cuda.current_stream().cuda_stream
        status = LIB.run(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), x.shape[0], self.weight.shape[1], x.shape[1], stream)
        if status:
            raise RuntimeError(f"the kernel was not launched: {status}")
        return y
