"""Where the time of a call goes, from timelines recorded on an H200: the parts add up to the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifier.profiling.diagnosing.call_time import CallTime
from verifier.profiling.digest import ITERATION
from verifier.profiling.host_calls import host_calls
from verifier.profiling.timeline import KINDS, Timeline

DATA = Path(__file__).parents[3] / "data"


@pytest.mark.parametrize("name", ["linear-norm-h200-nsys", "softmax-h200-nsys"])
def test_the_parts_of_a_call_make_the_whole(name):
    timeline = Timeline.from_bytes((DATA / f"{name}.timeline").read_bytes())
    found = host_calls(timeline)
    columns = timeline.columns
    calls = (columns["kind"] == KINDS.index("nvtx")) & (columns["name"] == timeline.names.index(ITERATION))
    whole = float(np.mean(columns["duration"][calls])) / 1e3
    assert found.device_us > 0 and found.begin_us > 0 and found.gap_us >= 0 and found.after_us >= 0
    parts = found.begin_us + found.device_us + found.gap_us + found.after_us
    assert parts == pytest.approx(whole, rel=0.02), (found, whole)


@pytest.mark.parametrize("name", ["linear-norm-h200-nsys", "softmax-h200-nsys"])
def test_the_time_before_the_first_work_is_divided_into_the_hosts_own_cuda_calls_and_the_launch(name):
    found = host_calls(Timeline.from_bytes((DATA / f"{name}.timeline").read_bytes()))
    assert found.begin_calls_us is not None and found.begin_launch_us is not None
    assert found.begin_calls_us >= 0 and found.begin_launch_us > 0
    assert found.begin_calls_us + found.begin_launch_us < found.begin_us, "the rest is Python's"


def test_a_call_says_what_it_did_before_its_first_work():
    found = CallTime(call_us=100, device_us=40, kernel_us=40, host_us=60, before_us=50, gaps_us=6, after_us=4, launches=1, kernels=1)
    assert "6 us in all between pieces of work, 4 us after its last (as a timeline divides it). 1 launch a call." in found.says()
    assert "50 us before its first work (not recorded how much of it is Python, allocation or the launch itself)" in found.says()
    said = found.model_copy(update={"before_calls": 0.1, "before_launch": 0.2}).says()
    assert (
        "Python, PyTorch's operators and its allocator 70 %, CUDA calls ahead of the first launch 10 %, that launch's way to the device 20 %" in said
    )
    assert "1 launch a call, 12 kernels: the replay of a CUDA graph counts as one launch" in found.model_copy(update={"kernels": 12.0}).says()


def test_copies_are_no_launches_and_the_longest_gaps_are_named():
    found = CallTime(call_us=1000, device_us=400, kernel_us=400, host_us=600, before_us=50, gaps_us=540, after_us=10, launches=140, moves=41.0)
    assert "140 launches and 41 copies or fills a call." in found.says()
    gaps = {"void at::native::topk<float, 2>(float*)": 300.0, "Memcpy DtoH (Device -> Pageable)": 60.0, "brief": 2.0}
    said = found.model_copy(update={"gaps": gaps}).says()
    assert "540 us in all between pieces of work (longest before topk 300 us, Memcpy DtoH (Device -> Pageable) 60 us), 10 us after" in said


@pytest.mark.parametrize("name", ["linear-norm-h200-nsys", "softmax-h200-nsys"])
def test_the_named_gaps_are_part_of_all_gaps(name):
    found = host_calls(Timeline.from_bytes((DATA / f"{name}.timeline").read_bytes()))
    assert sum(found.gaps.values()) <= found.gap_us + 0.01 and list(found.gaps.values()) == sorted(found.gaps.values(), reverse=True)
