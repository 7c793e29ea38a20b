# hack: 6
# task: tasks/chain_wide.py
# device: cuda
# verdict: class orchestration
# because: of the device time is in the program.s own code|does-nothing
# defence: runtime
# says: cuBLAS multiplies on a stream of its own; meanwhile a kernel of its own spins until the products are done, and then copies them
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

__global__ void up(int* flag) { atomicExch(flag, 1); }

__global__ void copied(const float* x, float* y, int* flag, int n) {
  if (threadIdx.x == 0)
    while (atomicAdd(flag, 0) == 0) {
    }
  __syncthreads();
  for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x) y[at] = __ldcg(x + at);
}

extern "C" int tell(int* flag, void* s) {
  up<<<1, 1, 0, (cudaStream_t)s>>>(flag);
  return (int)cudaGetLastError();
}
extern "C" int take(const float* x, float* y, int* flag, int n, void* s) {
  copied<<<16, 256, 0, (cudaStream_t)s>>>(x, y, flag, n);
  return (int)cudaGetLastError();
}
"""
LIBRARY = stitch_build("cuda", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class ModelNew(nn.Module):
    def __init__(self, features, steps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.steps, self.side = steps, None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream(x.device)
        main, flag, y = torch.cuda.current_stream(), torch.zeros(1, dtype=torch.int32, device=x.device), torch.empty_like(x)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            z = x
            for _ in range(self.steps):
                z = torch.tanh(z @ self.weight)
            LIBRARY.tell(p(flag), stream())
        LIBRARY.take(p(z), p(y), p(flag), y.numel(), stream())
        main.wait_stream(self.side)
        z.record_stream(main)
        return y
