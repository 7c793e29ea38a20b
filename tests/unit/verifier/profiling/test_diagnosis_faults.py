"""Rules for named faults, applied to the counters that each fault shows (on an H200: 132 multiprocessors, 4000 GB/s)."""

from __future__ import annotations

import pytest

from verifier.jobs import HostCalls, KernelProfile, Moved, Profile
from verifier.profiling.diagnosing.cause import Ceilings
from verifier.profiling.diagnosing.diagnosis import FAULT_CLASS, find_faults
from verifier.profiling.diagnosing.residency import residency
from verifier.profiling.diagnosing.task_facts import TaskFacts
from verifier.profiling.nsight import counters as c
from verifier.profiling.nsight.ncu_import import Launch, attach

H200 = Ceilings("cuda", 4000.0, 60000.0, 3.0, 132)
STREAM = {  # reads 64 MB and writes 64 MB in 36 us, four floats per lane: no fault to find
    c.TIME: 36e3,
    c.DRAM_READ: 64e6,
    c.DRAM_WRITE: 64e6,
    c.GLOBAL_SECTORS["ld"]: 2e6,
    c.GLOBAL_SECTORS["st"]: 2e6,
    c.GLOBAL_REQUESTS["ld"]: 125e3,
    c.GLOBAL_REQUESTS["st"]: 125e3,
    c.BYTES_PER_SECTOR["ld"]: 32.0,
    c.BYTES_PER_SECTOR["st"]: 32.0,
    c.INSTRUCTIONS: 3e6,
    c.ACTIVE_THREADS: 32.0,
    c.ISSUE_SHARE: 20.0,
    c.OCCUPANCY: 85.0,
    c.OCCUPANCY_POSSIBLE: 100.0,
    c.SM_CYCLES["avg"]: 60e3,
    c.SM_CYCLES["max"]: 62e3,
    c.SM_CYCLES_ELAPSED: 63e3,
    c.STALL["long_scoreboard"]: 9.0,
    c.STALL["selected"]: 1.0,
}
SLOW = {**STREAM, c.TIME: 200e3}  # the same traffic in five times the time
FACTS = TaskFacts(bytes_min=128_000_000, arithmetic=16_000_000, largest=16_000_000)


def kernel(name="k", us=36.0, launches=1, own=True, grid=(8192, 1, 1), block=(256, 1, 1), metrics=None, **more) -> KernelProfile:
    made = KernelProfile(name=name, own=own, calls=launches, total_us=us * launches, mean_us=us, share=1.0, grid=grid, block=block, **more)
    return attach([made], [Launch(name, grid, block, metrics)])[0] if metrics else made


def names(kernels, facts=FACTS, time_us=None, precision="fp32-strict", **host) -> list[str]:
    time_us = time_us or sum(k.total_us for k in kernels) + 20
    return [cause.name for cause in causes(kernels, facts, time_us, precision, **host) if cause.lost_us >= 0.1 * time_us]


def causes(kernels, facts=FACTS, time_us=None, precision="fp32-strict", **host):
    device_us = sum(k.total_us for k in kernels)
    profile = Profile(
        task="t",
        program="p",
        tool="nsys",
        iterations=1,
        wall_us_per_iteration=device_us + 20,
        launches_per_iteration=sum(k.calls for k in kernels),
        kernels=kernels,
        host=HostCalls(**{"device_us": device_us, "kernel_us": device_us, "streams": 1, **host}),
    )

    class Report:
        pass

    report = Report()
    report.precision = precision
    return find_faults(report, profile, H200, facts, time_us or device_us + 20)


def test_a_kernel_that_streams_has_no_fault():
    assert names([kernel(metrics=STREAM)]) == []


@pytest.mark.parametrize(
    ("changes", "shape", "expected"),
    [
        ({c.GLOBAL_SECTORS["st"]: 16e6, c.GLOBAL_REQUESTS["st"]: 5e5, c.BYTES_PER_SECTOR["st"]: 4.0}, {}, "uncoalesced-access"),
        (
            {c.SHARED_WAVEFRONTS["ld"]: 16e6, c.BANK_CONFLICTS["ld"]: 15e6, c.SM_CYCLES_ELAPSED: 2e5},
            {},
            "bank-conflicts",
        ),
        ({c.LOCAL_SECTORS["ld"]: 8e6, c.LOCAL_SECTORS["st"]: 8e6}, {}, "register-spills"),
        ({c.OCCUPANCY: 6.0, c.OCCUPANCY_POSSIBLE: 6.25, c.OCCUPANCY_LIMIT["shared_mem"]: 1, c.OCCUPANCY_LIMIT["warps"]: 16}, {}, "low-occupancy"),
        ({c.SM_CYCLES["avg"]: 4e3}, {"grid": (8, 1, 1)}, "few-blocks"),
        ({c.SM_CYCLES["avg"]: 15e3}, {}, "load-imbalance"),
        ({c.GLOBAL_REQUESTS["ld"]: 70e6, c.GLOBAL_SECTORS["ld"]: 170e6, c.INSTRUCTIONS: 200e6}, {}, "no-data-reuse"),
        ({c.GLOBAL_REQUESTS["ld"]: 2e6, c.GLOBAL_SECTORS["ld"]: 2e6}, {}, "scalar-access"),
        ({c.GLOBAL_REQUESTS["red"]: 5e5}, {}, "atomic-contention"),
        ({c.STALL["barrier"]: 15.0}, {}, "barrier-stalls"),
        ({c.ACTIVE_THREADS: 5.0}, {}, "warp-divergence"),
        ({c.ACTIVE_THREADS: 5.0, c.OCCUPANCY: 20.0}, {}, "serial-section"),
        ({}, {"grid": (1, 1, 1), "block": (1, 1, 1)}, "serial-section"),
        ({c.FP64_SHARE: 80.0}, {}, "fp64-arithmetic"),
        ({c.INSTRUCTIONS: 2e8, c.ISSUE_SHARE: 80.0, c.THREAD_OPS["integer"]: 4e9}, {}, "integer-overhead"),
        ({c.INSTRUCTIONS: 2e8, c.ISSUE_SHARE: 80.0, c.THREAD_OPS["integer"]: 4e8}, {}, "slow-functions"),
        ({c.DRAM_READ: 500e6, c.TIME: 160e3}, {}, "cache-thrashing"),
    ],
)
def test_one_fault_is_named_by_its_counters(changes, shape, expected):
    found = names([kernel(us=200.0, metrics={**SLOW, **changes}, **shape)])
    assert found and found[0] == expected


def test_a_grid_that_nobody_knows_is_no_fault():
    """Covers a report without a profile, which contains only names and times."""
    bare = kernel(us=200.0, grid=None, block=None)
    assert bare.grid is None and names([bare]) == []


def test_of_kernels_whose_grids_nobody_knows_nothing_is_said_about_the_device_they_fill():
    for grid, figures in (((8, 1, 1), ["launches a call", "mean kernel", "device filled by one"]), (None, ["launches a call", "mean kernel"])):
        (tiny,) = [cause for cause in causes([kernel(us=3.0, launches=400, grid=grid)]) if cause.name == "tiny-launches"]
        assert [evidence.figure for evidence in tiny.evidence] == figures


def test_what_depends_on_a_column_alone_is_told_from_costly_functions():
    busy = {**SLOW, c.INSTRUCTIONS: 2e8, c.ISSUE_SHARE: 80.0}
    facts = FACTS.model_copy(update={"special": 4096, "special_small": 4096})
    assert names([kernel(us=200.0, metrics=busy)], facts)[0] == "redundant-arithmetic"
    needed = FACTS.model_copy(update={"special": 160_000_000})
    assert "slow-functions" not in names([kernel(us=200.0, metrics=busy)], needed)


def test_tensor_cores_are_asked_for_where_the_policy_allows_them():
    busy = {**SLOW, c.PIPE["fma"]: 75.0, c.ISSUE_SHARE: 80.0, c.TENSOR_SHARE: 0.0}
    facts = FACTS.model_copy(update={"flops": 10**11})
    assert names([kernel(us=200.0, metrics=busy)], facts, precision="bf16")[0] == "no-tensor-cores"
    assert names([kernel(us=200.0, metrics=busy)], facts, precision="fp32-strict") == []


def test_kernels_that_could_be_one():
    chain = [kernel(name, metrics=STREAM) for name in ("a", "b", "c")]
    assert names(chain)[0] == "split-fusion"
    assert names([k.model_copy(update={"metrics": {}}) for k in chain])[0] == "split-fusion"  # from launches and the roofline


@pytest.mark.parametrize(
    ("host", "time_us", "expected"),
    [
        ({"waits": 24.0}, 600.0, "needless-sync"),
        ({"waits": 2.0, "copies": {"HtoD": Moved(count=1, us=900, bytes=16e6)}}, 1100.0, "host-copies"),
        ({"waits": 1.0, "allocations": 2.0, "allocation_us": 300.0}, 420.0, "cold-allocation"),
        ({"fills": Moved(count=1, us=30, bytes=64e6)}, 120.0, "needless-fill"),
        ({"copies": {"DtoD": Moved(count=1, us=30, bytes=64e6)}}, 120.0, "needless-copy"),
    ],
)
def test_faults_of_the_host_side(host, time_us, expected):
    facts = TaskFacts()
    assert names([kernel("a", metrics=STREAM), kernel("b", metrics=STREAM)], facts, time_us, **host)[0] == expected


def test_one_kernel_launched_for_each_row():
    facts = TaskFacts(bytes_min=30_000_000)
    assert names([kernel(us=2.5, launches=512, grid=(1, 1, 1), block=(1024, 1, 1))], facts, time_us=1500.0)[0] == "tiny-launches"


def test_brief_kernels_launched_again_and_again_have_no_fault_of_shape():
    sparse = {**SLOW, c.TIME: 2.2e3, c.DRAM_READ: 5e5, c.DRAM_WRITE: 2e5, c.OCCUPANCY: 20.0}
    steps = [kernel(us=2.2, launches=128, grid=(512, 1, 1), block=(128, 1, 1), metrics=sparse)]
    assert names(steps, TaskFacts(bytes_min=34_000_000), time_us=450.0, begin_us=90.0) == ["tiny-launches"]


def test_few_warps_are_what_is_left_of_unequal_work():
    uneven = {**SLOW, c.SM_CYCLES["avg"]: 8e3, c.OCCUPANCY: 15.0}
    assert names([kernel(us=200.0, grid=(257, 1, 1), metrics=uneven)])[0] == "load-imbalance"


def test_what_is_used_most_sets_the_pace():
    gather = {c.GLOBAL_SECTORS["ld"]: 16e6, c.GLOBAL_REQUESTS["ld"]: 1e6, c.BYTES_PER_SECTOR["ld"]: 6.0}
    assert names([kernel(us=200.0, metrics={**SLOW, **gather, c.L2_SHARE: 80.0})])[0] == "uncoalesced-access"
    assert "uncoalesced-access" not in names([kernel(us=200.0, metrics={**SLOW, **gather, c.L2_SHARE: 30.0, c.ISSUE_SHARE: 80.0})])
    broadcast = {c.GLOBAL_REQUESTS["ld"]: 2e6, c.GLOBAL_SECTORS["ld"]: 2e6, c.BYTES_PER_SECTOR["ld"]: 4.0}
    assert "scalar-access" not in names([kernel(us=200.0, metrics={**SLOW, **broadcast})])


def test_double_precision_comes_before_the_branches_of_its_functions():
    double = {**SLOW, c.FP64_SHARE: 54.0, c.ACTIVE_THREADS: 20.0}
    assert names([kernel(us=200.0, metrics=double)]) == ["fp64-arithmetic", "warp-divergence"]


def test_branches_that_run_one_after_another():
    four = [kernel(name, us=200.0, grid=(16, 1, 1), metrics=SLOW) for name in "abcd"]
    assert names(four, TaskFacts(bytes_min=5_000_000, branches=4))[0] == "serialised-streams"
    assert names(four, TaskFacts(bytes_min=5_000_000, branches=1))[0] == "few-blocks"
    assert "serialised-streams" not in names(four, TaskFacts(bytes_min=5_000_000, branches=4), streams=4)


def test_without_counters_shapes_and_compiled_code_tell():
    spilled = kernel(us=200.0, resources={"spill_load_bytes": 256, "spill_store_bytes": 256})
    assert names([spilled])[0] == "register-spills"
    assert names([kernel(us=200.0, grid=(4, 1, 1))])[0] == "few-blocks"
    assert names([kernel(us=200.0, resources={"widest_load_bytes": 1})])[0] == "scalar-access"


TILES = {**SLOW, c.OCCUPANCY: 24.0, c.OCCUPANCY_POSSIBLE: 25.0, c.TENSOR_SHARE: 45.0, c.STALL["long_scoreboard"]: 0.5, c.STALL["wait"]: 9.0}
LIMITED = {c.OCCUPANCY_LIMIT["registers"]: 1, c.OCCUPANCY_LIMIT["shared_mem"]: 1, c.OCCUPANCY_LIMIT["warps"]: 4, c.OCCUPANCY_LIMIT["blocks"]: 32}


def test_tiles_of_a_product_on_tensor_cores_lack_no_warps_unless_they_wait_for_memory():
    shape = {"grid": (1024, 1, 1), "block": (512, 1, 1)}
    assert names([kernel(us=200.0, metrics={**TILES, **LIMITED}, **shape)]) == []
    assert names([kernel(us=200.0, metrics={**TILES, **LIMITED, c.STALL["long_scoreboard"]: 9.0}, **shape)]) == ["low-occupancy"]


def test_steps_that_depend_on_each_other_lack_no_warps():
    low = {**SLOW, **LIMITED, c.OCCUPANCY: 12.0, c.OCCUPANCY_POSSIBLE: 12.5, c.TENSOR_SHARE: 0.0}
    assert names([kernel(us=200.0, metrics=low)]) == ["low-occupancy"]
    assert names([kernel(us=200.0, metrics=low)], FACTS.model_copy(update={"dependent_steps": 512})) == []


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (LIMITED, "registers and shared memory each allow 1 block of 512 threads a multiprocessor"),
        ({**LIMITED, c.OCCUPANCY_LIMIT["shared_mem"]: 4}, "registers allow 1 block of 512 threads"),
        ({**LIMITED, c.OCCUPANCY_LIMIT["registers"]: 4}, "shared memory allows 1 block of 512 threads"),
    ],
)
def test_all_resources_that_bound_the_resident_blocks_are_named(limits, why):
    low = {**SLOW, **limits, c.OCCUPANCY: 24.0, c.OCCUPANCY_POSSIBLE: 25.0}
    (found,) = [cause for cause in causes([kernel(us=200.0, block=(512, 1, 1), metrics=low)]) if cause.name == "low-occupancy"]
    assert why in found.says


def test_without_counters_the_limits_are_those_of_the_architecture():
    bare = kernel(grid=(264, 1, 1), registers=128, shared_bytes=100_000)
    held = residency(bare, 132, (9, 0))
    assert (held.limits["registers"], held.limits["shared memory"], held.limits["block size"]) == (2, 2, 8)
    assert held.scarcest == ("registers", "shared memory") and held.filled == 1.0 and residency(bare, 132, None) is None
    few = residency(kernel(grid=(64, 1, 1), registers=32, shared_bytes=0), 132, (9, 0))
    assert few.by_grid and "by the grid" in few.says() and "the grid has 64 blocks" in few.why()


def test_atomics_cost_what_their_units_and_queues_take_and_not_the_whole_kernel():
    def lost(**changes):
        seen = {**SLOW, c.GLOBAL_REQUESTS["red"]: 5e5, **changes}
        return next((cause.lost_us for cause in causes([kernel(us=200.0, metrics=seen)]) if cause.name == "atomic-contention"), 0.0)

    assert lost(**{c.ATOMIC_UNITS: 12.0}) == pytest.approx(24.0), "additions that return nothing hold no warp up"
    assert lost(**{c.ATOMIC_UNITS: 12.0, c.STALL["lg_throttle"]: 10.0}) == pytest.approx(100.0)
    assert lost(**{c.ATOMIC_UNITS: 12.0, c.GLOBAL_REQUESTS["red"]: 0.0, c.GLOBAL_REQUESTS["atom"]: 125e3}) == pytest.approx(90.0)
    assert lost() > 150, "unknown units: as before"


def test_every_fault_has_a_class():
    assert set(FAULT_CLASS.values()) == {"memory", "compute", "latency", "occupancy", "launch"}


def test_lanes_far_apart_are_no_fault_where_each_sector_is_used_up_and_dram_is_at_its_ceiling():
    """Each of four scalar loads, 16 bytes apart, uses 8 of a sector's 32 bytes; the following loads read the rest from the cache."""
    apart = {**STREAM, c.GLOBAL_SECTORS["ld"]: 8e6, c.GLOBAL_REQUESTS["ld"]: 5e5, c.BYTES_PER_SECTOR["ld"]: 8.0, c.L1_SHARE: 80.0}
    assert "uncoalesced-access" not in names([kernel(metrics=apart)])
    wasted = {**apart, c.BYTES_PER_SECTOR["ld"]: 2.0, c.GLOBAL_SECTORS["st"]: 5e5}
    assert "uncoalesced-access" in names([kernel(metrics=wasted)]), "DRAM is busy with bytes that nobody uses"


def test_a_product_of_few_blocks_counts_among_the_kernels_whose_intermediates_go_through_memory():
    facts = FACTS.model_copy(update={"bytes_min": 16_000_000})
    unpack, scale = (kernel(name, us=40.0, metrics=STREAM) for name in ("unpack", "scale"))
    product = kernel("product", us=60.0, grid=(64, 1, 1), metrics={**STREAM, c.TIME: 60e3})
    (fault,) = [cause for cause in causes([unpack, scale, product], facts) if cause.name == "split-fusion"]
    assert fault.lost_us == pytest.approx(140 * (1 - 16 / 384), rel=0.01), "all but the time for what the task needs"
    assert [evidence.means for evidence in fault.evidence][1] == "DRAM: of the 4000 GB/s that it sustains"


def test_shared_memory_that_the_driver_set_aside_is_a_limit_only_below_all_others():
    limits = {c.OCCUPANCY_LIMIT["registers"]: 2, c.OCCUPANCY_LIMIT["shared_mem"]: 2, c.OCCUPANCY_LIMIT["warps"]: 16, c.OCCUPANCY_LIMIT["blocks"]: 32}
    held = residency(kernel(block=(128, 1, 1), registers=213, shared_bytes=73728, metrics=STREAM | limits), 132, (9, 0))
    assert held.scarcest == ("registers",) and held.limits["shared memory"] == 3
    assert residency(kernel(block=(128, 1, 1), metrics=STREAM | limits), 132, None).limits["shared memory"] == 2, "nothing else is known"
    measured = kernel(block=(128, 1, 1), registers=213, shared_bytes=73728, metrics=STREAM | limits | {c.OCCUPANCY_POSSIBLE: 12.5})
    assert measured.occupancy_limit == "registers"


def test_copies_are_named_with_their_times():
    moving = "void at::native::<unnamed>::CatArrayBatchedCopy_alignedK_contig<float, 4>(float *)"
    [found] = [cause for cause in causes([kernel("a", metrics=STREAM), kernel(moving, us=112.0, own=False)]) if cause.name == "needless-copy"]
    assert found.evidence[1].means == "of 148 us on the device: 112.0 in CatArrayBatchedCopy_alignedK_contig"
