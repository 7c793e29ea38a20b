"""The memory of a real GPU: it is released with the last tensor that uses it, a task with 8 GiB of inputs and 8 GiB of outputs fits, and a shortage
is attributed to its cause."""

import asyncio

import pytest
import torch

from tests.unit.verifier.l1_norm import l1_norm
from verifier.client import Verifier
from verifier.devices import cuda_driver
from verifier.jobs import AdmitJob, VerifyJob
from verifier.limits import GIB, Limits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
]

COLUMNS = 65536
LAYER = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32768, 16384)

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.rand(64, 32768)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    loop = asyncio.new_event_loop()
    limits = Limits(load=60, inputs=60, call=60, oracle=120, quick_timing=0.4, memory=64 * GIB)
    verifier = Verifier("cuda:0", tmp_path_factory.mktemp("data"), limits)
    yield lambda job: loop.run_until_complete(verifier.run(job))
    loop.run_until_complete(verifier.close())
    loop.close()


def own(task: str) -> str:
    return task.replace("class Model", "class ModelNew")


def test_memory_that_was_left_goes_with_its_last_tensor(tmp_path):
    from verifier.devices.opening import open_device

    device = open_device("cuda:0", tmp_path)
    before = device.free_bytes()
    arena = device.allocate(4 * GIB)
    tensor = arena.bytes[GIB : GIB + 1024].view(torch.float32)
    arena.leave()
    del arena
    tensor.fill_(3.0)
    assert device.free_bytes() < before - 3 * GIB and float(tensor.sum()) == 3.0 * 256
    del tensor
    assert device.free_bytes() > before - GIB / 2
    device.close()


def test_a_task_of_8_gib_each_way(run):
    if cuda_driver.facts(0).memory_bytes < 120 * GIB:
        pytest.skip("this GPU has less than 120 GiB")
    task = l1_norm(32768, COLUMNS)
    admission = run(AdmitJob(task_source=task)).admission
    assert admission.ok and admission.oracle == "cuda:0" and 60 * GIB < admission.memory_bytes < 100 * GIB, admission
    report = run(VerifyJob(task_source=task, program_source=own(task))).report
    assert report.status == "passed" and report.oracle == "cuda:0", (report.status, report.message)


def test_a_program_that_hoards_memory_has_crashed(run):
    task = l1_norm(256, COLUMNS)
    hoards = own(task).replace("return x /", "self.hoard = [torch.empty(1 << 30, device=x.device) for _ in range(99)]\n        return x /")
    report = run(VerifyJob(task_source=task, program_source=hoards)).report
    assert report.status == "crashed" and "OutOfMemoryError" in report.message, (report.status, report.message)


def test_a_task_that_does_not_fit_is_refused_with_figures(run):
    rows = cuda_driver.facts(0).memory_bytes // (65536 * 4) // 5
    admission = run(AdmitJob(task_source=l1_norm(rows, COLUMNS))).admission
    assert not admission.ok and any("GiB" in problem.message for problem in admission.problems), admission.problems


def test_large_weights_are_drawn_on_the_gpu(run):
    report = run(VerifyJob(task_source=LAYER, program_source=own(LAYER))).report
    assert report.status == "passed" and report.weights == "loaded", (report.status, report.message)
    seconds = {stage.name: stage.seconds for stage in report.stages}
    assert seconds["correctness"] < 15, seconds  # 2 GiB: 2.5 s per constructor on the host
