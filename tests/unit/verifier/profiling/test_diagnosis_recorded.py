"""The rules applied to programs with one planted fault each, as recorded on an H200: each fault is named, its cost is about right, and its cure comes
first among the methods allowed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from agents.diagnosis import Ceilings, diagnose
from verifier.jobs import Profile
from verifier.profiling.diagnosing.diagnosis import FAULT_CLASS
from verifier.profiling.diagnosing.task_facts import TaskFacts
from verifier.profiling.nsight.counting import COUNTED_LAUNCHES, enough_launches
from verifier.profiling.recording import Recording
from verifier.report import Report

DATA = Path(__file__).parents[3] / "data"
SAMPLE = json.loads((DATA / "planted-h200.json").read_text())
KERNELBENCH = json.loads((DATA / "kernelbench-profiles-h200.json").read_text())["rows"]
CEILINGS = Ceilings(**SAMPLE["ceilings"])
PROTECTION = {"sandbox": "process", "layers": []}


def of_kernelbench(name):
    row = KERNELBENCH[name]
    figures = row["figures"]
    ceilings = Ceilings("cuda", figures["bandwidth_gbs"], figures["fp32_gflops"], figures["launch_us"], figures["units"])
    return diagnosed(row, row["ms"], ceilings, row["floor_ms"])


def diagnosed(row, ms, ceilings=CEILINGS, floor_ms=None):
    timing = {"program_ms": ms, "bounded": True, "clock_agrees": True, "round_trip_ms": 0.005, "comparisons": []}
    environment = SAMPLE["environment"]
    terms = {"task": "t", "program": "p", "tier": "quick", "mode": "train", "seed": 1, "status": "passed", "precision": row["precision"]}
    report = Report.model_validate({**terms, "environment": environment, "protection": PROTECTION, "timing": timing})
    profile = Profile.model_validate({**row["profile"], "protection": PROTECTION})
    facts = TaskFacts.model_validate(row["facts"])
    return diagnose(report, profile, ceilings, bytes_min=facts.bytes_min, flops=facts.flops, floor_ms=floor_ms, facts=facts)


@pytest.mark.parametrize("name", SAMPLE["rows"])
def test_a_recorded_fault_is_named_and_cured_first(name):
    row = SAMPLE["rows"][name]
    found = diagnosed(row, row["ms"]["faulty"])
    assert found.grade == "counters"
    assert found.faults[0].name == row["fault"] and found.methods[0] == row["method"]
    assert found.bottleneck == FAULT_CLASS[row["fault"]]


@pytest.mark.parametrize("name", [name for name, row in SAMPLE["rows"].items() if row["ms"]["faulty"] > 1.5 * row["ms"]["good"]])
def test_what_a_fault_is_said_to_cost_is_about_what_it_costs(name):
    row = SAMPLE["rows"][name]
    lost = 1e3 * (row["ms"]["faulty"] - row["ms"]["good"])
    assert 0.6 * lost <= diagnosed(row, row["ms"]["faulty"]).faults[0].lost_us <= 1.5 * lost


def test_functions_of_double_that_branch_are_no_divergence():
    faults = [cause.name for cause in diagnosed(SAMPLE["rows"]["gelu_double"], 0.183).faults]
    assert faults == ["fp64-arithmetic", "warp-divergence"]


def test_gathers_and_broadcasts_from_a_cache_do_not_hide_costly_indices():
    for name in ("hash_modulo", "channel_affine_modulo"):
        row = SAMPLE["rows"][name]
        assert [cause.name for cause in diagnosed(row, row["ms"]["faulty"]).faults] == ["integer-overhead"]


@pytest.mark.parametrize("task", ["level1/1_Square_matrix_multiplication_.py", "level2/76_Gemm_Add_ReLU.py"])
def test_tiles_copied_to_shared_memory_are_not_called_scattered(task):
    """16 bytes per lane mean 16 or more sectors per request, and the counter of used bytes ignores such copies: it is 0. Tiles of a product on tensor
    cores do not lack warps either: registers and shared memory allow one block each by design, and no warp waits for memory."""
    found = of_kernelbench(f"{task} program")
    assert [fault.name for fault in found.faults] == ["barrier-stalls"]
    assert found.bottleneck == "latency" and found.methods[0] == "fewer-barriers" and "on tensor cores" in found.text


def test_scattered_copies_that_nobody_waits_for_cost_nothing():
    """A convolution with stride 4 gathers 14 sectors per request; its warps wait for memory 2 % of the time, and at barriers 42 % of the time."""
    found = of_kernelbench("level1/50_conv_standard_2D__square_input__square_kernel.py program")
    assert {fault.name for fault in found.faults} == {"barrier-stalls"} and found.bottleneck == "latency"


def test_multiprocessors_busy_with_more_than_the_task_needs_are_compute():
    """In cuDNN's convolution with one channel, for example, the multiprocessors are 83 % busy for 7 % of the arithmetic; the roofline alone would
    suggest latency."""
    found = of_kernelbench("level3/4_LeNet5.py reference")
    assert found.bottleneck == "compute" and not found.faults
    assert "the multiprocessors' busiest unit is 73 % busy while the device works; the task's own operations would take 7 % of the call" in found.text


def test_launches_are_counted_until_each_kernel_was_seen_twice():
    recording = Recording("nsys", "H200")
    device, ranges = ("gpu", "Stream 7", "GPU"), ("nvtx", "NVTX", "Process")
    at = 0.0
    for _ in range(3):
        recording.add(ranges, "nvtx", "iter", at, 10_000.0)
        for step in range(64):
            for kernel in ("scale(float*)", "tops(float*)", "other(int)"):
                recording.add(device, "kernel", kernel, at + 100 * step, 50.0, detail={"grid": [16, 1, 1]})
        recording.add(device, "kernel", "finish(float*)", at + 9000, 50.0, detail={"grid": [1, 1, 1]})
        at += 20_000.0
    timeline = recording.timeline()
    assert np.count_nonzero(timeline.columns["kind"] == 0) == 3 * (3 * 64 + 1)
    assert enough_launches(timeline, ["scale", "tops"]) == 4
    assert enough_launches(timeline, ["finish"]) == 1
    assert enough_launches(timeline, ["scale", "finish"]) == COUNTED_LAUNCHES
    assert enough_launches(timeline, []) == COUNTED_LAUNCHES
