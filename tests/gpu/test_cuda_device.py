"""The whole verifier on a real GPU: sandboxed parties, CUDA IPC, native clock, nvcc, CUPTI and nsys."""

import asyncio

import pytest
from programs import CRASHING_PROGRAM, NORM, NORM_PROGRAM, SOFTMAX, SOFTMAX_PROGRAM, TRITON_PROGRAM

from verifier.client import Verifier
from verifier.devices import cuda_driver
from verifier.jobs import Job, JobResult, ProfileJob, VerifyJob
from verifier.profiling.nsight.nsys import find_nsys
from verifier.profiling.timeline import Timeline

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs jobs one after another on one judge."""
    loop = asyncio.new_event_loop()
    verifier = Verifier("cuda:0", tmp_path_factory.mktemp("data"))

    def job(request: Job) -> JobResult:
        return loop.run_until_complete(verifier.run(request))

    yield job
    loop.run_until_complete(verifier.close())
    loop.close()


def test_a_cuda_kernel_passes_and_is_custom(run):
    result = run(VerifyJob(task_source=SOFTMAX, program_source=SOFTMAX_PROGRAM))
    report = result.report
    assert not result.error and report.status == "passed", result.error or report.message
    assert report.program_class == "custom" and report.own_share > 0.9
    assert [kernel.name.split("<")[0] for kernel in report.kernels if kernel.own] == ["void row_softmax"]
    assert report.timing.clock_agrees
    assert report.environment.device_model and report.environment.driver and report.environment.compiler.startswith("nvcc")
    assert 0 < report.floor_fraction < 1.1


def test_triton_runs_in_the_sandbox(run):
    pytest.importorskip("triton")
    result = run(VerifyJob(task_source=SOFTMAX, program_source=TRITON_PROGRAM))
    assert result.report and result.report.status == "passed", result.error or result.report.message
    assert result.report.program_class == "custom"


def test_an_illegal_address_is_the_programs_and_the_next_job_runs(run):
    report = run(VerifyJob(task_source=SOFTMAX, program_source=CRASHING_PROGRAM)).report
    assert report.status == "crashed"
    assert "illegal" in report.message
    assert run(VerifyJob(task_source=SOFTMAX, program_source=SOFTMAX_PROGRAM)).report.status == "passed"


def test_the_full_tier_has_every_baseline(run):
    result = run(VerifyJob(task_source=NORM, program_source=NORM_PROGRAM, tier="full"))
    report = result.report
    assert report.status == "passed", report.message
    assert [comparison.baseline for comparison in report.timing.comparisons] == ["eager", "compile", "compile-max-autotune", "cuda-graph"], (
        report.reasons
    )
    assert report.program_class == "orchestration"  # the task itself, without any kernel of the program's own


def test_the_profile_is_by_nsys_where_it_is_installed(run):
    nsys, why = find_nsys()
    result = run(ProfileJob(task_source=SOFTMAX, program_source=SOFTMAX_PROGRAM))
    assert not result.error
    profile = result.profile
    assert profile.tool == ("nsys" if nsys and not why else "cupti"), profile.fallback_reason
    assert profile.iterations == 5 and profile.launches_per_iteration == 1
    assert [kernel.own for kernel in profile.kernels] == [True]
    timeline = Timeline.from_bytes(result.timeline)
    assert timeline.rows[0].kind == "gpu" and timeline.device


def test_the_reference_can_be_profiled_too(run):
    result = run(ProfileJob(task_source=NORM))
    assert not result.error and result.profile.program is None
    assert result.profile.launches_per_iteration > 2 and not any(kernel.own for kernel in result.profile.kernels)


def test_the_graph_of_a_model_that_replaces_its_state_stays_right():
    """By the time the graph is replayed, the tensor to which it writes has been replaced by another one, and its memory has been released."""
    import torch

    from verifier.devices.cuda_graph import Graphed

    class Cell(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = torch.randn(512, 4096)
            self.step = torch.nn.Linear(4096, 4096)

        def forward(self, x, initial):
            self.hidden.copy_(initial)
            self.hidden = self.hidden.to(x.device)
            self.hidden = torch.tanh(self.step(self.hidden + x))
            return self.hidden * 2

    with torch.no_grad():
        cell = Cell().cuda()
        cell.hidden = cell.hidden.cuda()
        graphed = Graphed(cell)
        for seed in range(4):
            torch.manual_seed(seed)
            x, initial = torch.randn(512, 4096, device="cuda"), torch.randn(512, 4096, device="cuda")
            got = graphed(x, initial)
            torch.cuda.empty_cache()
            expected = torch.tanh(cell.step(initial + x)) * 2
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
