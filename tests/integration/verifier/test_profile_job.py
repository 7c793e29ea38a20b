"""The `profile` job on the CPU, run through the judge, the sandbox and torch.profiler."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.verifier_data import prepared
from verifier.build import inline_helper
from verifier.client import Verifier
from verifier.jobs import ProfileJob
from verifier.profiling.timeline import KINDS, Timeline

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return []
"""
PROGRAM = (
    "import ctypes\nimport torch\nimport torch.nn as nn\n"
    + Path(inline_helper.__file__).read_text()
    + '''
LIBRARY = stitch_build("cpp", r"""
#include <cmath>
extern "C" void scaled_tanh(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = std::tanh(x[i]) * 2.0f;
}
""")
LIBRARY.scaled_tanh.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
LIBRARY.scaled_tanh.restype = None


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        LIBRARY.scaled_tanh(x.data_ptr(), y.data_ptr(), x.numel())
        return y
'''
)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """Returns profiles of the program, of the reference, and of a program that raises."""

    async def take():
        verifier = Verifier("cpu", prepared(tmp_path_factory.mktemp("data")), spares=1)
        try:
            broken = PROGRAM.replace("return y", "raise ValueError('nothing to see')")
            jobs = [ProfileJob(task_source=TASK, program_source=source, iterations=3) for source in (PROGRAM, None, broken)]
            return [await verifier.run(job) for job in jobs]
        finally:
            await verifier.close()

    return asyncio.run(take())


def test_own_functions_of_a_program_are_seen(profiles):
    result = profiles[0]
    assert not result.error
    profile = result.profile
    assert (profile.tool, profile.iterations) == ("torch-profiler", 3)
    assert "CPU" in profile.fallback_reason
    assert [(kernel.name, kernel.calls) for kernel in profile.kernels if kernel.own] == [("scaled_tanh", 3)]
    assert profile.launches_per_iteration == 2  # the allocation and the function
    timeline = Timeline.from_bytes(result.timeline)
    assert (timeline.columns["kind"] == KINDS.index("own")).sum() == 3


def test_the_reference_has_operators_and_nothing_of_its_own(profiles):
    profile = profiles[1].profile
    assert profile.program is None
    assert {kernel.name for kernel in profile.kernels} >= {"aten::tanh", "aten::mul"}
    assert not any(kernel.own for kernel in profile.kernels)


@pytest.mark.slow
def test_a_program_that_raises_is_named(profiles):
    assert "nothing to see" in profiles[2].error and profiles[2].profile is None
