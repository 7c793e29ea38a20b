"""The facts that the `integrity` stage reads from a trace: who launched a kernel, and whether its work was handed over in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verifier.integrity.launches import CALL, HANDOVER, beside, by_library, read_launches, union
from verifier.integrity.observed import _told

RECORDED = Path(__file__).resolve().parents[2] / "data" / "kineto-h200.json"


def event(category: str, name: str, begin: float, duration: float, **arguments: object) -> dict:
    names = {"external": "External id"}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": begin,
        "dur": duration,
        "pid": 1,
        "tid": 1,
        "args": {names.get(k, k): v for k, v in arguments.items()},
    }


def call(at: float, kernels: list[dict], handed_over: float) -> list[dict]:
    """Returns a call that starts at `at` and takes 10 us on the host; its marker starts on stream 7 at `handed_over`."""
    return [
        event("user_annotation", CALL, at, 10, external=1),
        event("user_annotation", HANDOVER, at + 11, 3, external=2),
        event("cuda_runtime", "cudaLaunchKernel", at + 12, 1, correlation=int(at) + 900),
        event("kernel", "vectorized_elementwise_kernel", handed_over, 2, stream=7, correlation=int(at) + 900, external=99),
        *kernels,
    ]


def kernel(name: str, asked: float, begin: float, duration: float, stream: int = 7, external: int = 0) -> list[dict]:
    correlation = int(asked * 10)
    return [
        event("cuda_runtime", "cudaLaunchKernel", asked, 1, correlation=correlation),
        event("kernel", name, begin, duration, stream=stream, correlation=correlation, **({"external": external} if external else {})),
    ]


def seen(*events: dict):
    return read_launches({"traceEvents": list(events)})


def test_kernels_that_run_at_the_same_time_are_told():
    found = seen(*call(0, kernel("gemm", 2, 20, 30) + kernel("mine", 4, 22, 38, stream=8) + kernel("mine", 6, 61, 2), 70))
    assert {(one.name, other.name): ms for (one, other), ms in beside(found.launches).items()} == {("gemm", "mine"): pytest.approx(0.028)}
    told = _told(found)
    ((one, other, ms),) = told["beside"]
    assert {told["kernels"][one]["name"], told["kernels"][other]["name"]} == {"gemm", "mine"} and ms == pytest.approx(0.028)


def test_a_kernel_knows_the_operator_that_launched_it():
    found = seen(
        event("cpu_op", "aten::mm", 1, 5, external=41),
        *call(0, kernel("gemm", 2, 20, 30, external=41) + kernel("mine", 8, 50, 10), 60),
    )
    assert [(launch.name, launch.via) for launch in found.launches] == [("gemm", "aten::mm"), ("mine", "")]
    assert found.busy_ms == pytest.approx(0.04) and found.span_ms == pytest.approx(0.04)
    assert found.late_ms == found.unjoined_ms == 0.0 and found.calls == 1


def test_work_on_a_stream_that_nobody_waited_for():
    side = kernel("mine", 2, 20, 100, stream=13)
    assert seen(*call(0, side, 30)).unjoined_ms == pytest.approx(0.09)
    assert seen(*call(0, side, 121)).unjoined_ms == 0.0  # the caller's stream waited
    assert seen(*call(0, kernel("mine", 2, 20, 100), 119.5)).unjoined_ms == 0.0  # work on the same stream is ordered anyway


def test_work_that_is_asked_for_after_forward_has_returned():
    late = kernel("mine", 30, 40, 100)
    rest = call(200, kernel("mine", 202, 220, 10), 240)
    assert seen(*call(0, late, 30), *rest).late_ms == 0.0  # the thread that makes the calls is the runner's own
    for of in late:
        of["tid"] = 2
    assert seen(*call(0, late, 30), *rest).late_ms == pytest.approx(0.1)


def test_work_without_a_record_on_the_host_belongs_to_the_call_before_it():
    found = seen(*call(0, [event("kernel", "mine", 40, 100, stream=7, correlation=77)], 141), *call(200, [], 220))
    assert found.late_ms == 0.0 and [launch.name for launch in found.launches] == ["mine"]


def test_who_is_a_library():
    assert by_library("aten::addmm") and by_library("triton_poi_fused_add_0") and by_library("Torch-Compiled Region: 0/0")
    assert not by_library("") and not by_library("mylib::softmax") and not by_library("MyFunction")
    assert not by_library("triton_ops::softmax")  # an operator of the program's own namespace, whose kernels it wrote


def test_overlapping_spans_count_once():
    assert union([(0, 10), (5, 12), (20, 21)]) == 13


def test_what_is_no_trace():
    with pytest.raises(ValueError, match="not a trace"):
        read_launches({"traceEvents": 3})
    assert read_launches({"traceEvents": [7, {"ph": "X"}, {"ph": "X", "cat": "kernel", "ts": 1.0}]}).launches == []


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded trace is not in this checkout")
def test_a_recorded_trace():
    trace = json.loads(RECORDED.read_text())
    kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
    first, last = min(e["ts"] for e in trace["traceEvents"] if "ts" in e), max(e["ts"] for e in kernels)
    trace["traceEvents"].append(event("user_annotation", CALL, first, last - first + 1e6))
    found = read_launches(trace)
    assert len(found.launches) == len(kernels)
    via = {launch.name: launch.via for launch in found.launches}
    assert via["addk(float const*, float const*, float*, int)"] == ""
    assert any(by_library(operator) for name, operator in via.items() if "xmma_gemm" in name)
