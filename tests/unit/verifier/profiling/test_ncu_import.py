"""Reading Nsight Compute's tables, using a real one from an H200 (one library GEMM)."""

from pathlib import Path

import pytest

from verifier.jobs import KernelProfile
from verifier.profiling.nsight import counters
from verifier.profiling.nsight.metrics import CUDAFORGE, SECTIONS, completed, normal, requested
from verifier.profiling.nsight.ncu_import import Launch, attach, kernels_of, problem, read_launches, refused_metrics, unknown_metrics, warnings

TABLE = (Path(__file__).parents[3] / "data" / "ncu-gemm-h200.csv").read_text()
GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(cutlass_80_simt_sgemm_256x128_8x4_nn_align1::Params)"


def kernel(name, **values):
    return KernelProfile(**{"name": name, "own": False, "calls": 1, "total_us": 1.0, "mean_us": 1.0, "share": 1.0} | values)


def test_a_real_table():
    (launch,) = read_launches(TABLE)
    assert launch.kernel.startswith("void Kernel2<cutlass_80_simt_sgemm") and launch.grid == (128, 1, 1) and launch.block == (256, 1, 1)
    assert launch.metrics[counters.TIME] == 343_040 and launch.metrics[counters.DRAM_READ] == 16_851_712
    assert launch.metrics[counters.REGISTERS] == 202
    # Fields that identify the host are not imported.
    assert not any("127.0.0.1" in str(value) or "python" in str(value) for value in vars(launch).values())


def test_counters_reach_the_kernel_whatever_namespaces_are_printed():
    (measured,) = attach([kernel(GEMM, grid=(128, 1, 1), block=(256, 1, 1))], read_launches(TABLE))
    assert (measured.occupancy, measured.occupancy_possible, measured.occupancy_limit) == (0.125, 0.125, "registers")
    assert next(iter(measured.stalls)) == "selected" and sum(measured.stalls.values()) == pytest.approx(1, abs=0.01)
    assert measured.registers == 202


def test_all_24_published_counters_are_there():
    (measured,) = attach([kernel(GEMM)], read_launches(TABLE))
    assert len(CUDAFORGE) == 24
    assert [name for name in CUDAFORGE if name not in measured.metrics] == []
    assert measured.metrics["sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active"] == 79.05
    stall = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
    assert measured.metrics[stall.format("memory_dependency")] == measured.metrics[stall.format("long_scoreboard")] == pytest.approx(0.88, abs=0.01)


def test_what_the_diagnosis_reads_is_asked_for():
    asked = set(requested([])) | set(completed(dict.fromkeys(requested([]), 1.0)))
    assert set(counters.METRICS) <= asked
    assert set(requested(["launch"])) >= set(SECTIONS["launch"]) and len(requested(["launch"])) < len(requested([]))


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        ("1,234.5", "", 1234.5),
        ("1.5", "us", 1500),
        ("2", "msecond", 2e6),
        ("3.19", "Ghz", 3.19e9),
        ("53.58", "Gbyte/s", 53.58e9),
        ("12", "Kbyte/block", 12_000),
        ("100", "%", 100),
        ("4", "sector", 4),
        ("n/a", "%", None),
        ("nan", "", None),
        ("", "byte", None),
    ],
)
def test_units(value, unit, expected):
    assert normal(value, unit) == (None if expected is None else pytest.approx(expected))


def test_instances_of_a_template_are_told_apart():
    kernels = [kernel("void k<4>(float*)", grid=(8, 1, 1), block=(64, 1, 1)), kernel("void k<8>(float*)", grid=(16, 1, 1), block=(64, 1, 1))]
    launches = [
        Launch("void k<8>(float *)", (16, 1, 1), (64, 1, 1), {counters.TIME: 10.0}),
        Launch("void k<8>(float *)", (16, 1, 1), (64, 1, 1), {counters.TIME: 30.0}),
        Launch("void ns::k<(int)4>(float *)", (2, 1, 1), (32, 1, 1), {counters.TIME: 5.0}),
        Launch("void other(float *)", (2, 1, 1), (32, 1, 1), {counters.TIME: 7.0}),
    ]
    first, second = attach(kernels, launches)
    assert first.metrics[counters.TIME] == 5.0 and second.metrics[counters.TIME] == 20.0


def test_half_a_namespace_is_taken_off():
    """The name is the one that Nsight Compute 2025.3 wrote for eager's softmax on an H200, next to the name in Nsight Systems."""
    wrote = "void unnamed>::cunn_SoftMaxForward<4, float, float, float, unnamed>::SoftMaxForwardEpilogue>(T4 *, const T2 *, int)"
    called = (
        "void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, float, float, at::native::<unnamed>::SoftMaxForwardEpilogue>"
        "(T4 *, const T2 *, int)"
    )
    table = f'"ID","Kernel Name","Block Size","Grid Size","{counters.TIME}"\n"","","","","nsecond"\n"0","{wrote}","(1024, 1, 1)","(4096, 1, 1)","6"\n'
    (launch,) = read_launches(table)
    backward = called.replace("Forward", "Backward")
    other, measured = attach([kernel(backward), kernel(called)], [launch])
    assert measured.metrics[counters.TIME] == 6 and not other.metrics
    assert "its table names void cunn_SoftMaxForward" in problem(table, "")
    assert problem("==ERROR== Out of memory\n" + table, "") == "==ERROR== Out of memory"


def test_kernels_that_only_the_counters_saw():
    launches = [Launch("void own<4>(float *)", (2, 1, 1), (32, 1, 1), {counters.TIME: 3000.0})] * 2
    launches += [Launch("gemm", (9, 1, 1), (128, 1, 1), {counters.TIME: 2000.0})]
    first, second = kernels_of(launches, lambda name: "own" in name)
    assert (first.own, first.calls, first.total_us, first.mean_us, first.share) == (True, 2, 6.0, 3.0, 0.75)
    assert not second.own and attach([first, second], launches)[1].metrics[counters.TIME] == 2000.0


def test_an_error_about_counters_is_told_from_others():
    assert refused_metrics("==ERROR== Unrecognised metrics were asked for\n") and not refused_metrics("==ERROR== no device\n")


def test_rubbish_is_no_table():
    assert read_launches("") == [] == read_launches("==ERROR== nothing\n") == read_launches('"ID","Kernel Name"\n"","",\n"0"\n')
    assert read_launches('"ID","Kernel Name"\n"","\n') == []


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM)", "dcgmi profile --pause"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "virtual machine or gVisor"),
        ("==WARNING== No kernels were profiled.", "no kernel ran"),
        ("==ERROR== something odd in /home/someone/x.so", "something odd in x.so"),
        ("", "it wrote nothing"),
    ],
)
def test_failures_are_named(log, said):
    assert said in problem(log, "")


def test_unknown_counters_are_found_so_that_the_rest_can_be_taken():
    asked = ["sm__cycles_active.avg", "smsp__sass_thread_inst_executed_op_integer_pred_on.sum"]
    assert unknown_metrics("==ERROR== Failed to find metric smsp__sass_thread_inst_executed_op_integer_pred_on.sum\n", asked) == asked[1:]
    assert unknown_metrics("==ERROR== Failed to find metric sm__cycles_active\n", asked) == asked[:1]
    assert unknown_metrics("==PROF== Connected to process 7\n", asked) == []


def test_warnings_that_matter():
    assert warnings("==WARNING== Note: Running with unmodified GPU clocks. If\n==WARNING== Backing up 9 GB takes long\n") == [
        "Backing up 9 GB takes long"
    ]
