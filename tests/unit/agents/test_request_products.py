"""What requests say of products on tensor cores: the code that a Coder is given, what three of fp16 need, padding, and floors by bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_requests import H200, compiled, group, passed, profile, situation

from agents.floor import elements_text, floor_of, padding, steps_text
from agents.roles import measured
from agents.roles.fragments import HALF, products_note, shown_primitives
from agents.roles.llm_coder import places_told
from agents.roles.of_reference import profile_text
from agents.strategies.how_to import how_tos
from compiler import Options
from compiler.families.product import warpgroup
from verifier.jobs import HostCalls, KernelProfile, Moved
from verifier.parties.capturing.capture import capture
from verifier.profiling.diagnosing.task_facts import task_facts
from verifier.report import Trial


def test_products_of_tf32_and_fp16_share_the_list_of_their_sums():
    shown = shown_primitives()
    places, listed = warpgroup.sums_of(warpgroup.COLUMNS)
    assert shown.count("#define SUM_PLACES ") == 1 and shown.count("#define SUMS ") == 1 and shown.count('"+f"(sum[63])') == 1
    expanded = shown.replace(" \\\n", "\n").replace(HALF, "")
    expanded = expanded.replace(f"#define SUM_PLACES {places}\n#define SUMS {listed}\n", "")
    assert expanded.replace("SUM_PLACES", places).replace(": SUMS", f": {listed}") == warpgroup.PRIMITIVES, "nothing else differs from tested code"


def test_a_plan_is_told_what_the_coder_is_given():
    said = products_note(["fuse-block", "split-product"], H200)
    assert "erred by 15 % of its bound" in said and "none for mma.sync, clusters, bulk copies (TMA) or mbarriers" in said
    assert products_note(["fuse-block"], H200) == "" and products_note(["split-product"], H200.model_copy(update={"capability": (8, 0)})) == ""


@pytest.mark.parametrize(("power", "kept"), [(0, 23), (10, 23), (16, 22)])
def test_two_halves_of_a_scaled_element_keep_the_bits_that_the_how_to_says(power, kept):
    assert (
        "into [2^14, 2^15)" in how_tos()["split-product"].cuda
        and "down to 2^-16 of the row's largest keep 22 bits" in how_tos()["split-product"].cuda
    )
    x = torch.rand(20_000, generator=torch.Generator().manual_seed(0)).add(1).mul(2.0 ** (14 - power))
    high = x.half()
    back = high.double() + (x - high.float()).half().double()
    assert ((back - x.double()).abs() / x).max() <= 2.0**-kept


def test_a_step_with_few_rows_is_padded_on_tensor_cores():
    assert "have 10 rows, which tensor cores pad to 16: there they take at least 1.6 times the floor's time" in steps_text(512, 1, H200, 10)
    assert padding(64) == "" and padding(63) == "" and padding(0) == "" and "pad to 8" in padding(1)


def test_exchanges_are_not_estimated_where_the_waits_of_a_program_are_known():
    short = steps_text(512, 1, H200, 10, waits_known=True)
    assert short.startswith("It counts only bytes and products, not dependent steps: 512 steps of a recurrence follow each other here. A step's")
    assert "through L2" not in short and "pad to 16" in short
    assert "through L2" in steps_text(512, 1, H200, 10)


def test_the_rows_of_a_step_are_the_batch_of_a_recurrent_layer():
    sequence = torch.randn(12, 10, 8)
    assert task_facts(capture(torch.nn.GRU(8, 8), [sequence], "a task", "train")).step_rows == 10
    assert task_facts(capture(torch.nn.GRU(8, 8, batch_first=True), [sequence], "a task", "train")).step_rows == 12


def test_a_floor_says_where_bytes_take_longer_than_three_products_of_fp16():
    found = floor_of(200 * 10**6, 11 * 10**9, H200, "fp32-strict")
    assert 0 < found.split_ms < found.memory_ms < found.compute_ms
    assert found.says().endswith("within the error bound; then the bytes take longer)")
    assert "take longer" not in floor_of(10**6, 11 * 10**9, H200, "fp32-strict").says()


def test_shares_of_the_reference_are_of_kernels_with_copies_beside_them():
    host = HostCalls(device_us=860, kernel_us=762, copies={"DtoH": Moved(count=41, us=96, bytes=236)}, fills=Moved(count=3, us=3, bytes=4608))
    kernels = [KernelProfile(name="k", own=False, calls=5, total_us=3810, mean_us=762, share=1.0)]
    said = profile_text(profile(host=host, kernels=kernels))
    assert "Shares are of the time in kernels (copies and fills take 99 us a call beside it):" in said
    assert "Shares are of the time in kernels:" in profile_text(profile(host=HostCalls(device_us=516, kernel_us=516), kernels=kernels))


def test_groups_are_not_told_beside_a_plan_with_larger_steps():
    found, groups = passed(), [group(f"g{n}", ["mul"], 10**9) for n in (1, 2, 3)]
    known = situation(found, plan=compiled(*groups))
    assert "3 groups fused by itself" in measured.over_floor(found, known)
    known.plan.payload["steps"] = [{"id": "s1", "operators": ["g1-g3"]}]
    assert "fused by itself" not in measured.over_floor(found, known)


def test_a_bound_of_one_or_more_is_explained():
    found = passed()
    found.report.trials = [Trial(name="task inputs 1", seed=1, ok=True, error=1.9, bound=8.2, norm="a norm")]
    assert "Rounding alone moves outputs so far in this task" in measured.error_text(found.report)
    found.report.trials[0].bound = 0.5
    assert "Rounding alone" not in measured.error_text(found.report)


def test_a_repair_lists_groups_once():
    first, failed = passed(1), passed(2)
    first.edit, failed.base = replace(first.edit, options=Options()), first
    failed.report.status = "wrong_result"
    known = situation(first, failed)
    assert places_told(failed, known)
    first.report.status = "wrong_result"
    assert not places_told(failed, known), "without a best program, its groups stand nowhere else"


def test_work_beside_products_is_told_where_it_counts_against_the_floor():
    each = H200.fp32_gflops / 2 * 1e6  # instructions of the fp32 units in a millisecond
    said = elements_text(int(0.02 * each), H200, 0.05)
    assert (
        said
        == f" Its other operators handle {0.02 * each / 1e6:,.0f} million elements together: 20 us at one instruction of the fp32 units for each."
    )
    assert elements_text(int(0.02 * each), H200, 0.5) == "" and elements_text(None, H200, 0.5) == "" and elements_text(10**9, None, 0.5) == ""
