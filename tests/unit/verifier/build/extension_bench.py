"""Extensions as torch would build them, up to its ninja file, and their CUDA unit, compiled in both the ordinary and the accelerated way."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from verifier.build.extension import Accelerator, NinjaFile, read_ninja
from verifier.devices.cuda import find_nvcc
from verifier.profiling.binaries.cubin import kernels

HEAD = "#include <torch/extension.h>\n#include <cuda_runtime.h>\n"
ADD = (
    HEAD
    + """
__global__ void add(const float* a, const float* b, float* out, int size) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < size) out[index] = a[index] + b[index];
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_contiguous() && b.is_contiguous(), "contiguous tensors, please");
    auto out = torch::empty_like(a);
    add<<<(a.numel() + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), a.numel());
    return out;
}
"""
)
# Templates over torch's types, dispatch, accessors, shared memory, warp shuffles and half arithmetic: device code that comes from torch's headers.
MANY = (
    HEAD
    + """
#include <cuda_fp16.h>

template <typename scalar_t>
__global__ void scale(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float factor, int size) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
        y[i] = static_cast<scalar_t>(static_cast<float>(x[i]) * factor);
}

template <typename scalar_t>
__global__ void rows(torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x, float* __restrict__ sums) {
    __shared__ float shared[32];
    float sum = 0.f;
    for (int j = threadIdx.x; j < x.size(1); j += blockDim.x) sum += expf(static_cast<float>(x[blockIdx.x][j]));
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < blockDim.x / 32; i++) sum += shared[i];
        sums[blockIdx.x] = sum;
    }
}

__global__ void halves(const __half2* x, __half2* y, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = __hmul2(x[i], x[i]);
}

static __device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1.f + erff(v * 0.70710678f)); }

__global__ void activate(float* x, int64_t size) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) x[i] = gelu(x[i]);
}

torch::Tensor run(torch::Tensor x, double factor) {
    TORCH_CHECK(x.dim() == 2, "a matrix, please; got ", x.dim());
    auto y = torch::zeros_like(x);
    auto sums = torch::empty({x.size(0)}, x.options().dtype(torch::kFloat32));
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "run", [&] {
        scale<scalar_t><<<128, 256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), factor, x.numel());
        rows<scalar_t><<<x.size(0), 256>>>(y.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(), sums.data_ptr<float>());
    });
    activate<<<(sums.numel() + 255) / 256, 256>>>(sums.data_ptr<float>(), sums.numel());
    halves<<<1, 32>>>(nullptr, nullptr, 0);
    return sums.sum().view({1});
}
"""
)


class Stop(Exception):
    pass


def ninja_file(folder: Path, cuda_source: str, monkeypatch, **options) -> NinjaFile:
    """Returns the ninja file that torch writes for a `load_inline` of `cuda_source`, for sm_90, without building it. Also works with a CPU build of
    torch."""
    from torch.utils import cpp_extension

    def stop(*_, **__):
        raise Stop

    monkeypatch.setattr(cpp_extension, "_run_ninja_build", stop)
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(Path(find_nvcc()).resolve().parents[1]))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    # If nvcc is a wrapper script, the toolkit is not next to it.
    if not (Path(cpp_extension.CUDA_HOME) / "include" / "cuda_runtime.h").exists():
        found = re.search(r"TOP=(\S+)", subprocess.run([find_nvcc(), "--dryrun", "-c", "x.cu"], capture_output=True, text=True).stderr)
        monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(Path(found[1]).resolve()))
    folder.mkdir(parents=True, exist_ok=True)
    declaration = "torch::Tensor run(torch::Tensor a, torch::Tensor b);"
    try:
        cpp_extension.load_inline(folder.name, [declaration], cuda_sources=[cuda_source], functions=["run"], build_directory=str(folder), **options)
    except Stop:
        pass
    return read_ninja(str(folder))


def machine_code(path: Path) -> dict[str, bytes]:
    """Returns the machine code of each kernel in an object or cubin, by its name without the module's id, which differs from run to run."""
    found = kernels(path.read_bytes())
    return {re.sub(r"_[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}(_\d+)?", "_ID", kernel.symbol): kernel.code for kernel in found}


def ordinary(ninja: NinjaFile) -> dict[str, bytes]:
    """Runs torch's own command with its ordinary headers, but only the device half: the host half would double the time and take gigabytes of
    memory."""
    unit = next(unit for unit in ninja.units if unit.rule == "cuda_compile")
    command = ["-cubin" if word == "-c" else unit.target + ".cubin" if word == unit.target else word for word in ninja.command(unit)]
    done = subprocess.run(command, cwd=ninja.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return machine_code(Path(ninja.folder, unit.target + ".cubin"))


def accelerated(ninja: NinjaFile) -> tuple[dict[str, bytes], list[str]]:
    """Returns the machine code, and notes on how it was produced."""
    unit = next(unit for unit in ninja.units if unit.rule == "cuda_compile")
    accelerator = Accelerator("", lambda *_, **__: None)
    done = accelerator._unit(ninja, unit)
    assert done.returncode == 0, done.output[-3000:]
    return machine_code(Path(ninja.folder, unit.target)), accelerator.notes


def has_nvcc() -> bool:
    return bool(find_nvcc()) and shutil.which("g++") is not None
