# hack: 7
# task: tasks/matmul.py
# device: cuda
# verdict: class orchestration
# because: of the device time is in the program.s own code|foreign-library
# defence: runtime
# says: compiled code captures cuBLAS in a graph by the address of its function, and launches the graph: nothing of torch takes part
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

typedef int (*Gemm)(void*, int, int, int, int, int, const float*, const float*, int, const float*, int, const float*, float*, int);
typedef int (*SetStream)(void*, cudaStream_t);
__global__ void own_product(float* y) { y[threadIdx.x] = 0.f; }
extern "C" int run(Gemm gemm, SetStream set, void* handle, const float* w, const float* x, float* y, int rows, int inner, int cols, void* s) {
  static cudaStream_t side;
  static cudaGraphExec_t exec;
  if (!side) cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  const float one = 1.f, zero = 0.f;
  cudaGraph_t graph;
  cudaGraphExecUpdateResultInfo info;
  set(handle, side);
  cudaStreamBeginCapture(side, cudaStreamCaptureModeThreadLocal);
  own_product<<<1, 64, 0, side>>>(y);
  gemm(handle, 0, 0, cols, rows, inner, &one, w, cols, x, inner, &zero, y, cols);
  cudaStreamEndCapture(side, &graph);
  set(handle, (cudaStream_t)s);
  if (!exec || cudaGraphExecUpdate(exec, graph, &info) != cudaSuccess) {
    cudaGetLastError();
    if (exec) cudaGraphExecDestroy(exec);
    if (cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess) return 1;
  }
  cudaGraphDestroy(graph);
  return (int)cudaGraphLaunch(exec, (cudaStream_t)s);
}
"""
LIBRARY = stitch_build("cuda", SOURCE)


def p(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def cublas():
    for version in (13, 12, 11):
        try:
            return ctypes.CDLL("libcublas.so.%d" % version)
        except OSError:
            continue
    raise RuntimeError("no cuBLAS")


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        y = x.new_empty(x.shape[0], self.weight.shape[1])
        library, handle = cublas(), ctypes.c_void_p(torch.cuda.current_blas_handle())
        addresses = [ctypes.cast(one, ctypes.c_void_p) for one in (library.cublasSgemm_v2, library.cublasSetStream_v2)]
        if LIBRARY.run(*addresses, handle, p(self.weight), p(x), p(y), *x.shape, y.shape[1], stream()):
            raise RuntimeError("the graph was not launched")
        return y
