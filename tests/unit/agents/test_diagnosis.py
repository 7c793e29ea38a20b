from __future__ import annotations

import pytest
from agent_fakes import CEILINGS, TASK, report

from agents.diagnosis import Ceilings, diagnose
from agents.roles.compiled import Compiled
from agents.roles.device_text import device_text
from compiler import DeviceFigures
from verifier.jobs import KernelProfile, Profile, VerifyJob

H200 = Ceilings("cuda", 4000.0, 60000.0, 3.0, 132)
JOB = VerifyJob(task_source=TASK, program_source="# x")  # the fake takes 3 ms / ratio per call


def profile(**changes) -> Profile:
    kernel = KernelProfile(name="k", own=True, calls=1, total_us=1, mean_us=1, share=0.9, grid=(8, 1, 1), block=(256, 1, 1))
    return Profile(**{"task": "t", "program": "p", "tool": "nsys", "iterations": 5, "wall_us_per_iteration": 3000.0, "kernels": [kernel], **changes})


@pytest.mark.parametrize(
    ("ceilings", "seen", "bytes_min", "flops", "floor_ms", "bottleneck"),
    [
        (CEILINGS, profile(), 40_000_000, 10**6, 2.0, "memory"),  # 2 ms out of 3 ms at 20 GB/s
        (CEILINGS, profile(), 10**6, 200_000_000, 2.0, "compute"),
        (CEILINGS, profile(), 10**6, 10**6, 0.05, "latency"),
        (CEILINGS, profile(), 59_000_000, 10**6, 2.9, "none"),
        (CEILINGS, profile(), 150_000_000, 10**6, 7.5, "memory"),  # faster than memory allows: the data come from a cache, so it is not at the floor
        (CEILINGS, None, 40_000_000, None, None, "memory"),
        (H200, profile(launches_per_iteration=400, device_busy=0.3), 10**8, 10**6, 0.1, "launch"),
        (H200, profile(launches_per_iteration=2, device_busy=0.95), 10**8, 10**6, 0.1, "occupancy"),
        (H200, profile(launches_per_iteration=2, device_busy=0.3, kernels=[]), 10**8, 10**6, 0.1, "launch"),  # the device waits for the host
        (H200, profile(launches_per_iteration=1, device_busy=0.3, kernels=[]), 10**8, 10**6, 0.1, "latency"),
    ],
)
def test_one_bottleneck_with_its_evidence(ceilings, seen, bytes_min, flops, floor_ms, bottleneck):
    found = diagnose(report(JOB, ratio=1.0), seen, ceilings, bytes_min=bytes_min, flops=flops, floor_ms=floor_ms)
    assert found.bottleneck == bottleneck
    assert 2 <= len(found.evidence) <= 6 and found.evidence[0].figure == "time a call"
    assert found.headroom == (pytest.approx(3.0 / floor_ms) if floor_ms else None)
    assert found.text.endswith(".")


def test_a_defect_quotes_the_report():
    found = diagnose(report(JOB, "build_failed", message="expected ';'"), None, CEILINGS, bytes_min=1, flops=1, floor_ms=1)
    assert found.bottleneck == "defect" and "does not compile" in found.text and "expected ';'" in found.text


def test_methods_for_a_newer_gpu_need_its_compute_capability():
    def methods(capability):
        ceilings = Ceilings("cuda", 4000.0, 60000.0, 3.0, 132, capability)
        seen = profile(launches_per_iteration=1, device_busy=0.95)
        return diagnose(report(JOB, ratio=1.0), seen, ceilings, bytes_min=10**6, flops=10**11, floor_ms=0.5).methods

    assert "split-product" in methods((8, 0)) and "split-product" in methods(None)
    assert "split-product" not in methods((7, 5))  # no tensor cores for TF32
    assert "tma-copies" not in methods((8, 0))


@pytest.mark.parametrize(
    ("environment", "capability"),
    [
        ({"device": "cuda:0", "device_name": "NVIDIA A100", "capability": "8.0"}, (8, 0)),
        ({"device": "cuda:0", "device_name": "NVIDIA H200", "capability": "9.0", "multiprocessors": 132}, (9, 0)),
        ({"device": "cuda:0", "device_name": "NVIDIA B200", "capability": "10.0"}, (10, 0)),
        ({"device": "cuda:0", "capability": ""}, None),  # from a doctor that could not open the device
        ({"device": "cuda:0"}, None),  # from an older verifier
        ({"device": "cpu", "threads": 2}, None),
    ],
)
def test_the_compute_capability_is_that_of_the_device(environment, capability):
    figures = DeviceFigures.of(environment, environment["device"])
    assert figures.capability == capability
    assert Compiled(None, figures).ceilings.capability == capability
    assert ("compute capability" in device_text(figures)) == (capability is not None)
