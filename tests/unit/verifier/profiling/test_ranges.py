"""Ranges of modules and of operators are in separate rows, whichever tool recorded them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from verifier.profiling.annotating import with_ranges
from verifier.profiling.calls import profiled_calls
from verifier.profiling.digest import ANNOTATED, digest
from verifier.profiling.kineto import import_kineto
from verifier.profiling.ranges import range_kind
from verifier.profiling.recording import Recording
from verifier.profiling.timeline import KINDS, Timeline

MODULE_KIND = KINDS.index("module")


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("aten::conv2d, seq = 3, op_id = 12", ("operator", "aten::conv2d")),
        ("aten::add_", ("operator", "aten::add_")),
        ("ConvolutionBackward0, seq = 4", ("operator", "ConvolutionBackward0")),
        ("mylib::fused_norm.default, op_id = 9, sizes = [[2, 3]]", ("operator", "mylib::fused_norm.default")),
        ("module: features.0 (Conv2d)", ("module", "features.0 (Conv2d)")),
        ("nn.Module: Linear_3", ("module", "Linear_3")),
        ("iter", ("nvtx", "iter")),
        ("loss: step 3, seq 4", ("nvtx", "loss: step 3, seq 4")),
        ("LinearBackward", ("nvtx", "LinearBackward")),
        ("", ("nvtx", "")),
    ],
)
def test_a_name_tells_modules_and_operators_from_the_programs_own_ranges(text, known):
    assert range_kind(text) == known


def of_kind(timeline: Timeline, kind: str) -> list[str]:
    chosen = timeline.columns["kind"] == KINDS.index(kind)
    return [timeline.names[i] for i in timeline.columns["name"][chosen].tolist()]


def test_one_more_call_names_its_modules_and_counts_for_nothing():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU()))
    calls = []
    inputs = torch.ones(2, 4)

    def call() -> None:
        calls.append(1)
        model(inputs)

    timeline = import_kineto(profiled_calls(call, 2, "torch", lambda: None))
    assert len(calls) == 3 + 2 + 1
    assert of_kind(timeline, "module") == ["model (Sequential)", "0 (Linear)", "1 (Sequential)", "1.0 (ReLU)"]
    assert sorted(of_kind(timeline, "nvtx")) == ["iter", "iter", ANNOTATED]
    assert "Modules, thread 1" in [row.name for row in timeline.rows]
    found = digest(timeline, lambda name: False, on_device=False)
    assert found.iterations == 2
    assert next(kernel for kernel in found.kernels if kernel.name == "aten::relu").calls == 2
    model(inputs)  # no hook is left behind
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_a_program_that_fails_under_hooks_keeps_its_recording():
    def call() -> None:
        if torch.nn.modules.module._global_forward_pre_hooks:
            raise RuntimeError("not with hooks")

    timeline = import_kineto(profiled_calls(call, 2, "torch", lambda: None))
    assert of_kind(timeline, "nvtx").count("iter") == 2


def test_kinetos_python_tracer_gives_modules_and_a_range_named_like_an_operator_stays_a_range():
    def event(category: str, name: str) -> dict:
        return {"ph": "X", "cat": category, "name": name, "ts": 1, "dur": 2, "pid": 1, "tid": 1}

    events = [event("python_function", "nn.Module: Linear_0"), event("python_function", "torch/nn/modules/linear.py(1): forward")]
    timeline = import_kineto(json.dumps({"traceEvents": [*events, event("user_annotation", "mine::step"), event("cpu_op", "aten::addmm")]}))
    assert of_kind(timeline, "module") == ["Linear_0"]
    assert of_kind(timeline, "nvtx") == ["mine::step"]
    assert of_kind(timeline, "operator") == ["aten::addmm"]


def test_measured_calls_get_the_modules_of_the_call_with_ranges():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU()), torch.nn.Identity())
    inputs = torch.ones(2, 4)
    recorded = import_kineto(profiled_calls(lambda: model(inputs), 2, "torch", lambda: None))
    found = digest(recorded, lambda name: False, on_device=False)
    timeline = with_ranges(recorded).crop(*found.window)
    assert sorted(of_kind(timeline, "module")) == sorted(["model (Sequential)", "0 (Linear)", "1 (Sequential)", "1.0 (ReLU)"] * 2)
    assert of_kind(timeline, "nvtx") == ["iter", "iter"]  # the call with ranges is not kept
    columns = timeline.columns
    modules = columns["kind"] == MODULE_KIND
    depths = {timeline.names[name]: depth for name, depth in zip(columns["name"][modules].tolist(), columns["depth"][modules].tolist(), strict=True)}
    assert depths == {"model (Sequential)": 0, "0 (Linear)": 1, "1 (Sequential)": 1, "1.0 (ReLU)": 2}
    assert Timeline.from_bytes(timeline.to_bytes()).events == timeline.events
    assert digest(timeline, lambda name: False, on_device=False).kernels == found.kernels


def test_a_call_that_did_something_else_gets_no_ranges():
    model, inputs, calls = torch.nn.ReLU(), torch.ones(2, 4), []

    def call() -> None:
        calls.append(1)
        model(inputs if len(calls) != 4 else inputs + 1)

    recorded = import_kineto(profiled_calls(call, 2, "torch", lambda: None))
    timeline = with_ranges(recorded).crop(*digest(recorded, lambda name: False, on_device=False).window)
    assert of_kind(timeline, "module") == ["model (ReLU)"]


def test_launches_lead_the_ranges_on_a_device():
    recording = Recording("nsys", "H200")
    host, nvtx, stream = ("api", "CUDA API, thread 1", "CUDA"), ("nvtx", "NVTX, thread 1", "NVTX"), ("gpu", "Stream 7", "H200")
    for number, begin in enumerate((0, 1000)):
        recording.add(nvtx, "nvtx", "iter" if not number else ANNOTATED, begin, 500)
        for at, name in enumerate(("gemm", "relu")):
            pair = (1, 10 * number + at + 1)
            recording.add(host, "api", "cudaLaunchKernel", begin + 100 * at + 20 + number, 10, pair)
            recording.add(stream, "kernel", name, begin + 100 * at + 60, 30, pair)
    recording.add(("nvtx", "Modules, thread 1", "NVTX"), "module", "0 (Linear)", 1005, 90)
    recording.add(("nvtx", "Operators, thread 1", "NVTX"), "operator", "aten::relu", 1110, 30)
    timeline = with_ranges(recording.timeline())
    columns = timeline.columns
    module, operator = (np.flatnonzero(columns["kind"] == KINDS.index(kind))[0] for kind in ("module", "operator"))
    assert (columns["start"][module], columns["duration"][module]) == (20, 10)
    assert (columns["start"][operator], columns["duration"][operator]) == (120, 10)
