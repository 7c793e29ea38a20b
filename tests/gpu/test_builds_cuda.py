"""Builds on a GPU host, with a CUDA build of torch: they give the same machine code as the slow route, and extensions and raw kernels pass through
the whole verifier."""

import asyncio
import concurrent.futures
import sys
from pathlib import Path

import pytest
from programs import SOFTMAX, SOFTMAX_PROGRAM

sys.path.append(str(Path(__file__).resolve().parents[1] / "unit" / "verifier" / "build"))
import extension_bench  # noqa: E402

from verifier.client import Verifier  # noqa: E402
from verifier.devices import cuda_driver  # noqa: E402
from verifier.jobs import VerifyJob  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
]

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs():
    return [torch.randn(512, 2048), torch.randn(512, 2048)]


def get_init_inputs():
    return []
"""
# CUDA-specific parts of torch: the current stream, a device guard, a launch check.
STREAMS = (
    extension_bench.HEAD
    + """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void add4(const float4* a, const float4* b, float4* out, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) {
        float4 x = a[i], y = b[i];
        out[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    const at::cuda::OptionalCUDAGuard guard(device_of(a));
    auto out = torch::empty_like(a);
    int size = a.numel() / 4;
    add4<<<(size + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const float4*>(a.data_ptr<float>()), reinterpret_cast<const float4*>(b.data_ptr<float>()),
        reinterpret_cast<float4*>(out.data_ptr<float>()), size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    AT_CUDA_CHECK(cudaGetLastError());
    return out;
}
"""
)
PROGRAM = (
    '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """'''
    + STREAMS
    + '''"""
extension = load_inline(name="add_streams", cpp_sources="torch::Tensor run(torch::Tensor a, torch::Tensor b);", cuda_sources=cuda_source,
                        functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.run(a, b)
'''
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    loop = asyncio.new_event_loop()
    verifier = Verifier("cuda:0", tmp_path_factory.mktemp("data"))

    def job(program: str, task: str = TASK):
        result = loop.run_until_complete(asyncio.wait_for(verifier.run(VerifyJob(task_source=task, program_source=program)), 200))
        assert not result.error
        return result.report

    yield job
    loop.run_until_complete(verifier.close())
    loop.close()


def test_the_machine_code_is_that_of_the_slow_build(tmp_path, monkeypatch):
    """The ordinary headers take most of a minute to compile per program, so the programs are compiled concurrently."""
    sources = {"plain": extension_bench.ADD, "many": extension_bench.MANY, "streams": STREAMS}
    options = {"many": {"extra_cuda_cflags": ["-O3", "--use_fast_math"]}}

    def files(route):
        return [extension_bench.ninja_file(tmp_path / route / name, text, monkeypatch, **options.get(name, {})) for name, text in sources.items()]

    fast_files, slow_files = files("fast"), files("slow")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        slow = pool.map(extension_bench.ordinary, slow_files)
        fast = list(pool.map(extension_bench.accelerated, fast_files))
        slow = list(slow)
    for name, (code, notes), expected in zip(sources, fast, slow, strict=True):
        assert notes == ["cuda.cu: light headers"], (name, notes)
        assert code.keys() == expected.keys() and expected, name
        assert all(code[kernel] == expected[kernel] for kernel in expected), name


def test_an_extension_passes_with_light_headers_and_is_built_once(run):
    report = run(PROGRAM)
    assert report.status in ("passed", "inconclusive"), report.message
    assert "cuda.cu: light headers" in report.build.notes and any("main.cpp: slim headers" in note for note in report.build.notes)
    assert [row["kernel"] for row in report.build.resources] == ["add4"]
    assert report.build.resources[0]["registers"] > 0 and report.build.resources[0]["widest_load_bytes"] == 16
    again = run(PROGRAM)
    assert again.build.cached and again.build.resources == report.build.resources


def test_an_error_in_the_kernel_names_its_line(run):
    report = run(PROGRAM.replace("float4 x = a[i], y = b[i];", "float4 x = a[i], y = b[indx];").replace("add_streams", "add_wrong"))
    assert report.status == "build_failed"
    assert 'identifier "indx" is undefined' in report.message
    assert report.problems[0].line is not None
    assert report.stages[-1].name == "build"


def test_a_raw_kernel_is_compiled_while_torch_is_imported(run):
    report = run(SOFTMAX_PROGRAM, SOFTMAX)
    assert report.status in ("passed", "inconclusive"), report.message
    assert any(note.startswith("1 raw library") for note in report.build.notes)
    assert all(row["spill_store_bytes"] == 0 for row in report.build.resources) and report.build.resources
