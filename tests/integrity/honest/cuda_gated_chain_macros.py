# task: tasks/gated_chain.py
# device: cuda
# verdict: class custom
# says: kernels made by macros, and formatting that nobody would choose
import ctypes

import torch
from torch import nn


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

CODE = r"""
#include <cuda_runtime.h>
#define EACH(i, n) for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (n); i += (size_t)gridDim.x * blockDim.x)
#define POINTWISE(NAME, EXPRESSION) __global__ void NAME(const float* __restrict__ x, const float* g, const float* __restrict__ s, \
    float* y, size_t n, float alpha) { EACH(i, n) { float a = x[i], b = g[i]; y[i] = (EXPRESSION); } }
#define SIGMOID(v) (1.f / (1.f + expf(-(v))))

POINTWISE(left,  tanhf(a + *s) * SIGMOID(alpha * b))
POINTWISE(right, b + 0.5f * a)      /* here g is what `left` has written */

extern "C" int
run(const float*x,const float*g,const float*s,float*y,size_t n,float alpha,void*stream){left<<<512,128,0,(cudaStream_t)stream>>>(x,g,s,y,n,alpha);
right<<<512,128,0,(cudaStream_t)stream>>>(x,y,s,y,n,alpha);return (int)cudaGetLastError();}
"""
L = stitch_build("cuda", CODE)
L.run.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_size_t, ctypes.c_float, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x, gate):
        x, gate = x.contiguous(), gate.contiguous()
        y = torch.empty_like(x)
        assert not L.run(*(t.data_ptr() for t in (x, gate, self.shift, y)), x.numel(), self.alpha, torch.cuda.current_stream().cuda_stream), (
            "not launched"
        )
        return y
