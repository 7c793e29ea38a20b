"""The preparation before a device is used: tasks, axes and batches; and what a recording says about each program."""

from __future__ import annotations

import ast
import ctypes
import shutil

import pytest

from agents.arena.axes import Printed, options_at, space
from agents.arena.landscape import Axis
from bench.surveying.batches import batch_source, batches, compile_batch, imported, launchers, request_of
from bench.surveying.suite import EXAMPLES, LARGER, WRITTEN, Subject, example, subjects
from compiler import DeviceFigures, Options
from compiler.planning.knobs import rank

SOURCE = '''"""Scale."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 0.5, dim=-1)


def get_inputs():
    return [torch.rand(64, 512)]


def get_init_inputs():
    return []
'''


@pytest.fixture(scope="module")
def prepared():
    from bench.surveying.preparing import prepare

    return prepare(Subject("scale", "Scale", SOURCE), DeviceFigures.cpu(2), wanted=6, most=64)


def test_every_task_is_a_module_with_a_model_in_sizes_for_its_device():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(LARGER)
    for kind in ("cpu", "cuda"):
        found = subjects(kind)
        assert len(found) == len(LARGER) + len(WRITTEN) >= 20 and len({s.name for s in found}) == len(found)
        for subject in found:
            names = {node.name for node in ast.parse(subject.source).body if hasattr(node, "name")}
            assert {"Model", "get_inputs", "get_init_inputs"} <= names, subject.name
    assert example(EXAMPLES / "softmax.py", "cuda").source != example(EXAMPLES / "softmax.py", "cpu").source


def test_axes_change_programs_and_points_hold_every_combination(prepared):
    found = prepared.space
    count = 1
    for axis in found.axes:
        count *= len(axis.values)
        assert list(axis.values) == sorted(axis.values, key=rank if axis.numeric else None) and 0 <= axis.default < len(axis.values)
    assert len(found.program) == count and len(set(found.sources)) == len(found.sources) >= 6
    assert set(found.program) == set(range(len(found.sources)))


def test_the_default_point_is_the_compilers_own_program(prepared):
    axes = list(prepared.space.axes)
    default = tuple(axis.values[axis.default] for axis in axes)
    assert options_at(axes, default).model_dump() == Options().model_dump()
    printed = Printed(prepared.plan, SOURCE)
    assert printed.program(axes, default) in prepared.space.sources


def test_options_carry_strategies_and_numbers():
    axes = [
        Axis("row-cache", "g1", (0, 1), 1, "row-cache"),
        Axis("block", "g1", (128, 256), 1, "block-size", numeric=True),
        Axis("cuda-graph", "", (0, 1), 0),
    ]
    options = options_at(axes, (0, 128, 1))
    assert not options.on("row-cache", "g1") and options.knob("block", "g1", 256) == 128 and options.on("cuda-graph")


def test_a_space_stops_at_what_is_wanted_and_never_exceeds_the_most(prepared):
    assert len(space(prepared.plan, SOURCE, 4, 64).sources) >= 4
    assert len(space(prepared.plan, SOURCE, 1000, 24).program) <= 24


def test_programs_of_a_batch_keep_to_themselves(prepared, tmp_path):
    requests = prepared.requests
    source = batch_source(requests)
    assert source.count("namespace program_") == len(requests) and source.count("#include <cmath>") == 1
    first = next(iter(requests))
    name = next(iter(launchers_of(requests[first])))
    assert f"{name}__{first}(" in source
    assert batches([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_batch_compiles_and_its_programs_compute_what_the_task_does(prepared, tmp_path):
    import torch

    library = tmp_path / "batch.so"
    compile_batch(prepared.requests, "g++", "", library)
    x = torch.rand(64, 512)
    for number, request in prepared.requests.items():
        module = imported(prepared.space.sources[number], launchers(ctypes.CDLL(str(library)), request, number))
        torch.testing.assert_close(module["ModelNew"]()(x), torch.softmax(x * 0.5, dim=-1))


def test_a_program_without_kernels_asks_for_none():
    assert request_of("import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n") is None


def test_a_recording_is_sorted_out_by_program():
    from bench.surveying.kernels_seen import _of, sorted_out

    def event(cat, name, ts, dur, **args):
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": 1, "args": args}

    events = []
    for number, begin in ((0, 100.0), (1, 300.0)):
        events.append(event("user_annotation", f"program:{number}", begin, 150.0))
        for at in (begin + 5, begin + 75):
            events.append(event("user_annotation", "iter", at, 60.0))
            events.append(event("cuda_runtime", "cudaLaunchKernel", at + 1, 2.0, correlation=int(at)))
            kernel = f"program_{number + 7}::softmax_kernel(float const*, float*)"
            events.append(event("kernel", kernel, at + 5, 40.0 + number, correlation=int(at), device=0, stream=7, grid=[64, 1, 1], block=[256, 1, 1]))
            events.append(event("kernel", "at::native::copy_kernel(int)", at + 48, 5.0, correlation=int(at) + 1, device=0, stream=7))
    ranges = {0: (100.0, 250.0), 1: (300.0, 450.0)}
    found = sorted_out(events, ranges)
    assert [len(found[n]) for n in (0, 1)] == [8, 8] and not any(e["name"].startswith("program") for n in (0, 1) for e in found[n])
    seen = _of([{"id": 0, "name": "NVIDIA H200"}], found[1], frozenset({"softmax"}))
    own = [kernel for kernel in seen.per_call if kernel.own]
    assert [kernel.name for kernel in own] == ["softmax_kernel(float const*, float*)"] and own[0].calls == 1
    assert own[0].mean_us == pytest.approx(41.0) and own[0].grid == (64, 1, 1)
    assert 0 < seen.profile.device_busy < 1 and seen.profile.launches_per_iteration == 2


def launchers_of(request):
    from bench.surveying.batches import launcher_names

    return launcher_names(request)


@pytest.mark.slow
def test_a_survey_measures_resumes_and_marks_what_killed_it(tmp_path):
    import json
    import time

    from agents.arena.landscape import STATUSES, load
    from bench.surveying.survey import Shard

    def shard(seconds: float) -> Shard:
        until = time.monotonic() + seconds
        return Shard("cpu", [Subject("scale", "Scale", SOURCE)], tmp_path / "part-0.json", tmp_path / "data", 5, 16, until, [])

    shard(0).flying.write_text(json.dumps({"task": "scale", "number": 1}))
    assert shard(0).measure() is False  # no time at all: the known results are kept
    first = load(tmp_path / "part-0.json").landscapes[0]
    assert [STATUSES[first.status[i]] for i, n in enumerate(first.program) if n == 1][0] == "crashed" and first.measured == 1
    assert shard(300).measure() is True
    whole = load(tmp_path / "part-0.json").landscapes[0]
    assert whole.measured == whole.distinct and whole.eager_us > 0
    assert {STATUSES[s] for s in whole.status} == {"passed", "crashed"} and all(
        us > 0 for us, s in zip(whole.us, whole.status, strict=True) if s == 0
    )


def test_figures_of_what_another_compiler_printed_are_not_taken_over(prepared):
    from dataclasses import replace

    from bench.surveying.measuring import Result, landscape_of, results_of

    found = landscape_of(prepared, {0: Result("passed", us=5.0)}, [10.0])
    assert results_of(found, prepared)[0].us == 5.0
    other = replace(prepared.space, sources=[source + "# another version\n" for source in prepared.space.sources])
    assert results_of(found, replace(prepared, space=other)) is None
