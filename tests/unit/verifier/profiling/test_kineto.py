import ctypes
import json
from pathlib import Path

import pytest
import torch

from verifier.profiling.digest import digest
from verifier.profiling.kineto import import_kineto
from verifier.profiling.nsight.nsys_import import ImportProblem
from verifier.profiling.own_calls import traced_calls
from verifier.profiling.timeline import KINDS

TRACE = Path(__file__).parents[3] / "data" / "kineto-h200.json"


def test_a_trace_of_a_gpu():
    timeline = import_kineto(TRACE.read_bytes())
    assert (timeline.tool, timeline.device) == ("cupti", "NVIDIA H200")
    assert [row.name for row in timeline.rows] == ["Stream 7", "CUDA API, thread 1", "Thread 1"]
    figures = digest(timeline, lambda name: name.startswith("addk("), on_device=True)
    assert [(kernel.own, kernel.calls) for kernel in figures.kernels] == [(False, 20), (True, 20)]
    assert figures.kernels[1].grid == (65536, 1, 1) and figures.kernels[1].registers == 16
    assert figures.own_share == pytest.approx(0.02, abs=0.005)
    assert figures.warnings == ["no range named 'iter': the figures cover the whole recording"]


def test_a_launch_leads_to_its_kernel():
    timeline = import_kineto(TRACE.read_bytes())
    kinds, correlations = timeline.columns["kind"], timeline.columns["correlation"]
    api = set(correlations[kinds == KINDS.index("api")].tolist())
    assert all(c in api for c in correlations[kinds == KINDS.index("kernel")].tolist())


def libc() -> Path:
    """Returns the path of this process's C library."""
    return next(Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("libc.so.6"))


@pytest.fixture
def cpu_trace(tmp_path) -> bytes:
    """Yields a trace, recorded by the test, of three iterations of an operator and one of the program's own functions."""
    built = tmp_path / "libown.so"
    built.symlink_to(libc())
    with traced_calls(str(built.resolve().parent)):
        library = ctypes.CDLL(str(built))
        other = ctypes.CDLL("libc.so.6")  # not in the builder's folder, and therefore not the program's own
    assert type(other.usleep).__name__ != "TracedFunction"
    library.usleep.argtypes = [ctypes.c_uint]
    library.usleep.restype = ctypes.c_int
    x = torch.randn(64, 64)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            with torch.profiler.record_function("iter"):
                torch.softmax(x @ x, 0)
                assert library.usleep(2000) == 0
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    return (tmp_path / "trace.json").read_bytes()


def test_a_trace_of_the_cpu_shows_operators_and_own_functions(cpu_trace):
    timeline = import_kineto(cpu_trace)
    assert (timeline.tool, timeline.device) == ("torch-profiler", "CPU")
    assert {row.kind for row in timeline.rows} == {"nvtx", "thread"}
    figures = digest(timeline, lambda name: False, on_device=False)
    assert figures.iterations == 3
    assert figures.launches_per_iteration == 3  # matmul, softmax and the program's own function; nested calls do not count
    own = [kernel for kernel in figures.kernels if kernel.own]
    assert [(kernel.name, kernel.calls) for kernel in own] == [("usleep", 3)]
    assert 0 < figures.own_share < 1
    assert 0 < figures.device_busy <= 1


def test_calls_outside_the_profiler_still_work():
    with traced_calls(str(libc().parent)):
        library = ctypes.CDLL(str(libc().parent / "libm.so.6"))
    library.sqrt.argtypes = [ctypes.c_double]
    library.sqrt.restype = ctypes.c_double
    assert library.sqrt(9.0) == 3.0
    assert ctypes.CDLL.__name__ == "CDLL"


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"traceEvents": 3}', b"\xff\xfe"])
def test_what_is_no_trace_is_a_named_problem(content):
    with pytest.raises(ImportProblem):
        import_kineto(content)


def test_events_that_make_no_sense_are_left_out_and_counted():
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 2, "pid": 1, "tid": 1}, {"ph": "X", "cat": "cpu_op"}, 7]
    timeline = import_kineto(json.dumps({"traceEvents": events}))
    assert timeline.events == 1
    assert timeline.warnings == ["1 events of the trace were not understood and are left out"]
