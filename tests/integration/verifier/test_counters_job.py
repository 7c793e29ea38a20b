"""Counters and sanitizers, run through the judge and the sandbox on the CPU: a stand-in for Nsight Compute writes a real table, and secrets are
planted."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.verifier_data import prepared
from verifier.build import inline_helper
from verifier.client import Verifier
from verifier.devices.cpu import CpuDevice
from verifier.jobs import KernelProfile, Profile, ProfileJob, SanitizeJob
from verifier.judge.pool import Pool
from verifier.limits import Limits
from verifier.profiling.job import watched
from verifier.profiling.nsight import counting
from verifier.profiling.nsight.ncu import Ncu
from verifier.profiling.sanitizing.sanitizers import find_address_sanitizer

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
SECRET = "planted-s3cret-value"
TABLE = Path(__file__).parents[2] / "data" / "ncu-gemm-h200.csv"
TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2


def get_inputs():
    return [torch.randn(64, 256)]


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
    for (long i = 0; i < n; i++)
        y[i] = std::tanh(x[i]) * 2.0f;
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
GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(Params)"


def fake_ncu(folder: Path, body: str) -> Ncu:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(TABLE, folder / "table")
    command = folder / "ncu"
    command.write_text(f'#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\nlog=$2; shift 2\n{body}\nexec "$@"\n')
    command.chmod(0o755)
    return Ncu(str(command), str(folder), "2025.3.1")


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Collects counters of the reference with a stand-in for the tool; the device reports that it is a GPU."""
    data = tmp_path_factory.mktemp("data")
    device = CpuDevice(data)
    pool = Pool(device, Limits(), 1)
    job = ProfileJob(task_source=TASK, counters=True)

    def count(ncu: Ncu, monkeypatch) -> Profile:
        kernel = KernelProfile(name=GEMM, own=False, calls=1, total_us=1, mean_us=1, share=1)
        profile = Profile(task="", program=None, tool="nsys", iterations=1, wall_us_per_iteration=1, kernels=[kernel])
        with watched(job, pool, data, lambda event: None, "profile") as subject:
            monkeypatch.setattr(counting, "find_ncu", lambda: (ncu, ""))
            monkeypatch.setattr(device, "kind", "cuda", raising=False)
            monkeypatch.setattr(type(subject), "ask", lambda self, party, tool, calls, limit: party.ask("empty_profile", {}, 5))
            counting.count(profile, subject, lambda event: None)
        return profile

    yield count
    pool.close()


@pytest.mark.slow
def test_counters_of_a_party_that_fails_meanwhile_are_kept(counted, monkeypatch, tmp_path):
    profile = counted(fake_ncu(tmp_path / "ncu", 'cp "$(dirname "$0")/table" "$log"'), monkeypatch)
    assert (profile.counters_tool, profile.counters_version) == ("ncu", "2025.3.1"), profile.counters_reason
    assert profile.kernels[0].occupancy == 0.125 and len(profile.kernels[0].metrics) > 24


def test_a_refusal_is_named_and_says_nothing_of_the_host(counted, monkeypatch, tmp_path):
    body = f'echo "==ERROR== ERR_NVGPUCTRPERM for $USER in {tmp_path}" >"$log"'
    profile = counted(fake_ncu(tmp_path / "ncu", body), monkeypatch)
    assert profile.counters_tool == "" and "NVreg_RestrictProfilingToAdminUsers=0" in profile.counters_reason
    assert str(tmp_path) not in profile.model_dump_json()


@pytest.mark.slow
def test_an_unknown_counter_is_left_out_and_the_rest_taken(counted, monkeypatch, tmp_path):
    name = "smsp__sass_thread_inst_executed_op_integer_pred_on.sum"
    folder = tmp_path / "ncu"
    ncu = fake_ncu(folder, "")
    script = f"""#!/bin/sh
all="$*"
while [ "$1" != --log-file ]; do shift; done
log=$2; shift 2
case "$all" in *{name}*) echo "==ERROR== Failed to find metric {name}" >"$log"; exit 1;; esac
cp "{folder}/table" "$log"
exec "$@"
"""
    (folder / "ncu").write_text(script)
    profile = counted(ncu, monkeypatch)
    assert profile.counters_tool == "ncu", profile.counters_reason
    assert any(name in warning for warning in profile.warnings)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Returns the jobs that a client requests, with secrets in its environment, in its data folder's name and in its home directory."""
    data = tmp_path_factory.mktemp(SECRET)
    os.environ["STITCH_PLANTED"] = SECRET
    wrong = PROGRAM.replace("i < n; i++", "i <= n; i++")
    asked = {
        "profile": ProfileJob(task_source=TASK, program_source=PROGRAM, iterations=2, counters=True),
        "reference": ProfileJob(task_source=TASK, iterations=2),
        "clean": SanitizeJob(task_source=TASK, program_source=PROGRAM),
        "wrong": SanitizeJob(task_source=TASK, program_source=wrong),
        "gpu tool": SanitizeJob(task_source=TASK, program_source=PROGRAM, tools=["racecheck"]),
    }

    async def take():
        verifier = Verifier("cpu", prepared(data), spares=1)
        events = []

        async def on_stage(event):
            events.append(event.model_dump_json())

        try:
            return {name: await verifier.run(job, on_stage) for name, job in asked.items()}, events
        finally:
            await verifier.close()

    try:
        yield asyncio.run(take())
    finally:
        del os.environ["STITCH_PLANTED"]


@pytest.mark.slow
def test_the_cpu_has_no_counters_and_says_so(jobs):
    results, _ = jobs
    assert not results["profile"].error
    assert results["profile"].profile.counters_reason == "Nsight Compute counts on GPUs; this is the CPU"
    assert results["reference"].profile.counters_reason == "not asked for"


@pytest.mark.slow
def test_the_profile_says_what_the_task_needs_at_least(jobs):
    roofline = jobs[0]["reference"].profile.roofline
    assert roofline.bytes >= 64 * 256 * 4 and roofline.memory_ms > 0 and roofline.ceilings


@pytest.mark.skipif(find_address_sanitizer()[0] is None, reason=find_address_sanitizer()[1])
def test_a_write_beyond_a_tensor_is_found_with_its_line(jobs):
    results, _ = jobs
    assert not results["wrong"].error, results["wrong"].error
    found = results["wrong"].sanitized
    writes = [fault for fault in found.faults if fault.access == "write of 4 bytes"]
    assert writes and (writes[0].tool, writes[0].kernel, writes[0].line) == ("address", "scaled_tanh", 5), found
    assert not found.clean


@pytest.mark.skipif(find_address_sanitizer()[0] is None, reason=find_address_sanitizer()[1])
def test_a_right_program_is_clean(jobs):
    results, _ = jobs
    assert not results["clean"].error, results["clean"].error
    assert results["clean"].sanitized.clean and results["clean"].sanitized.ran == ["address", "undefined"]


def test_a_tool_of_the_other_device_is_named(jobs):
    found = jobs[0]["gpu tool"].sanitized
    assert found.ran == [] and "checks GPUs" in found.missing["racecheck"]


def test_nothing_of_the_host_is_in_results_timelines_or_events(jobs):
    results, events = jobs
    texts = [result.model_dump_json() for result in results.values()] + events
    texts += [(result.timeline or b"").decode("latin-1") for result in results.values()]
    hidden = [SECRET, os.uname().nodename, str(Path.home()) + "/", str(Path(__file__).parents[3]) + "/", "STITCH_PLANTED"]
    for text in texts:
        assert not [word for word in hidden if len(word) > 3 and word in text], [word for word in hidden if word in text]
    assert json.loads(texts[0])
