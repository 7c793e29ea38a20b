# hack: 35
# task: tasks/softmax.py
# device: cuda
# verdict: rejected | inconclusive | wrong_result
# because: while the baselines were timed|GPU|late-work|processors busy|too wide
# defence: runtime
# says: a native thread launches long kernels while the program is not called
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
#include <pthread.h>
#include <unistd.h>
static volatile int calling, started;
__global__ void burn(int cycles) {
  long long begin = clock64();
  while (clock64() - begin < cycles) { }
}
static void* work(void*) {
  cudaStream_t side;
  cudaSetDevice(0);
  cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  for (;;) {
    if (!calling) {
      burn<<<1024, 256, 0, side>>>(4000000);
      cudaStreamSynchronize(side);
    } else {
      usleep(50);
    }
  }
  return 0;
}
extern "C" void between(int call) {
  calling = call;
  if (started) return;
  started = 1;
  pthread_t thread;
  if (!pthread_create(&thread, 0, work, 0)) pthread_detach(thread);
}
"""
LIBRARY = stitch_build("cuda", SOURCE)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        LIBRARY.between(1)
        y = torch.softmax(x, dim=-1) * self.scale
        LIBRARY.between(0)
        return y
