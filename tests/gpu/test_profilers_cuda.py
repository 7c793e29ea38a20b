"""Nsight Systems, Nsight Compute and compute-sanitizer around confined parties on a real GPU. A tool that is not installed is skipped, with the
reason; if the host forbids counters, the profile itself must report this.

    pytest -q tests/gpu/test_profilers_cuda.py            (STITCH_TEST_DEVICE=cuda:1 for another GPU)
"""

import asyncio
import os

import pytest
from programs import HELPER, NORM, SOFTMAX, SOFTMAX_PROGRAM

from verifier.client import Verifier
from verifier.devices import cuda_driver
from verifier.jobs import Job, JobResult, ProfileJob, SanitizeJob
from verifier.profiling.nsight import counters
from verifier.profiling.nsight.metrics import CUDAFORGE
from verifier.profiling.nsight.ncu import find_ncu
from verifier.profiling.nsight.nsys import find_nsys
from verifier.profiling.sanitizing.sanitizers import find_compute_sanitizer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
]
with_ncu = pytest.mark.skipif(find_ncu()[0] is None, reason=find_ncu()[1] or "ncu")
with_sanitizer = pytest.mark.skipif(find_compute_sanitizer()[0] is None, reason=find_compute_sanitizer()[1] or "compute-sanitizer")

SCALE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(1000)]


def get_init_inputs():
    return []
"""


def scale_program(kernel: str) -> str:
    return (
        "import ctypes\nimport torch\nimport torch.nn as nn\n"
        + HELPER
        + f'''
LIBRARY = stitch_build("cuda", r"""
{kernel}
extern "C" void run(const float* x, float* y, int n, void* stream) {{
    scale<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, y, n);
}}
""")
LIBRARY.run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
LIBRARY.run.restype = None


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        LIBRARY.run(x.data_ptr(), y.data_ptr(), x.numel(), torch.cuda.current_stream().cuda_stream)
        return y
'''
    )


RIGHT = """
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.f * x[i];
}
"""
BEYOND = RIGHT.replace("if (i < n) ", "")  # line 5 of the text: 24 elements beyond the tensor
RACING = """
__global__ void scale(const float* x, float* y, int n) {
    __shared__ float held[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    held[threadIdx.x] = i < n ? x[i] : 0.f;
    float other = held[threadIdx.x ^ 64];
    if (i < n) y[i] = 2.f * x[i] + (other != other ? other : 0.f);
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs jobs one after another on one judge."""
    loop = asyncio.new_event_loop()
    verifier = Verifier(os.environ.get("STITCH_TEST_DEVICE", "cuda:0"), tmp_path_factory.mktemp("data"))

    def job(request: Job) -> JobResult:
        return loop.run_until_complete(asyncio.wait_for(verifier.run(request), 240))

    yield job
    loop.run_until_complete(verifier.close())
    loop.close()


@with_ncu
def test_counters_of_a_programs_own_kernel(run):
    result = run(ProfileJob(task_source=SOFTMAX, program_source=SOFTMAX_PROGRAM, iterations=2, counters=True))
    assert not result.error, result.error
    profile = result.profile
    print(profile.model_dump_json(indent=1, exclude={"protection"}))
    if profile.counters_tool != "ncu":
        assert "NVreg_RestrictProfilingToAdminUsers" in profile.counters_reason, profile.counters_reason
        pytest.skip(profile.counters_reason)
    (kernel,) = [kernel for kernel in profile.kernels if kernel.own]
    assert [name for name in CUDAFORGE if name not in kernel.metrics] == []
    # The kernel reads and writes 4096 x 8192 floats once each: the counted traffic must match this to within a tenth.
    moved = kernel.metrics[counters.DRAM_READ] + kernel.metrics[counters.DRAM_WRITE]
    assert 0.7 < moved / (2 * 4096 * 8192 * 4) < 1.3
    assert 0 < kernel.occupancy <= kernel.occupancy_possible + 0.02
    assert sum(kernel.stalls.values()) == pytest.approx(1, abs=0.02)
    assert kernel.resources["spill_store_bytes"] == 0 and kernel.resources["registers"] == kernel.registers
    assert kernel.metrics[counters.TIME] / 1e3 == pytest.approx(kernel.mean_us, rel=0.5)


@with_ncu
def test_counters_of_the_reference(run):
    profile = run(ProfileJob(task_source=NORM, iterations=2, counters=True, sections=["speed-of-light", "occupancy"])).profile
    if profile.counters_tool != "ncu":
        pytest.skip(profile.counters_reason)
    counted = [kernel for kernel in profile.kernels if kernel.metrics]
    assert len(counted) >= 2 and not any(kernel.own for kernel in counted)
    assert all(counters.SM_SHARE in kernel.metrics for kernel in counted)


def test_without_counters_theory_is_there(run):
    profile = run(ProfileJob(task_source=SOFTMAX, program_source=SOFTMAX_PROGRAM, iterations=2)).profile
    nsys, why = find_nsys()
    assert profile.tool == ("nsys" if nsys and not why else "cupti"), profile.fallback_reason
    assert profile.counters_reason == "not asked for"
    (kernel,) = [kernel for kernel in profile.kernels if kernel.own]
    assert kernel.occupancy_possible and kernel.occupancy_limit and kernel.resources["arch"].startswith("sm_")
    assert kernel.resources["widest_load_bytes"] == 16


@with_sanitizer
def test_a_right_kernel_is_clean(run):
    found = run(SanitizeJob(task_source=SCALE, program_source=scale_program(RIGHT), tools=["memcheck", "synccheck"])).sanitized
    assert found.clean and found.ran == ["memcheck", "synccheck"], found


@with_sanitizer
def test_a_write_beyond_a_tensor_is_found_with_kernel_and_line(run):
    found = run(SanitizeJob(task_source=SCALE, program_source=scale_program(BEYOND), tools=["memcheck"])).sanitized
    faults = [fault for fault in found.faults if fault.kernel == "scale"]
    assert faults and faults[0].kind == "out of bounds" and faults[0].line == 5, found
    assert faults[0].thread is not None and faults[0].block == (3, 0, 0)


@with_sanitizer
def test_a_race_in_shared_memory_is_found(run):
    found = run(SanitizeJob(task_source=SCALE, program_source=scale_program(RACING), tools=["racecheck"])).sanitized
    assert [fault.kind for fault in found.faults if fault.kernel == "scale"][:1] == ["race"], found
