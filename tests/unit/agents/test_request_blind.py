"""Faults that readers who saw only a request found in it (errors, gaps and misleading statements), with one test per kind."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from agent_fakes import report
from test_requests import H200, JOB, compiled, group, passed, situation

from agents.floor import faster, floor_of, steps_text
from agents.roles import digest, measured, of_diagnosis, of_kernels
from agents.roles.best_program import best_text
from agents.roles.fragments import fragments_text, shown_primitives
from agents.roles.host_cost import spent_text
from agents.roles.kernel_floors import products_text
from agents.roles.llm_verifier import left_text
from agents.roles.names import whole_items
from agents.roles.of_device import clusters, device_text
from agents.roles.prompts import part
from agents.roles.rules_verifier import diagnosed
from agents.roles.situation import Attempt
from agents.settings import Budget, Settings
from agents.strategies import Facts, by_name
from agents.strategies.fitting import large_products
from compiler import DeviceFigures
from compiler.families.product import warpgroup
from verifier.correctness import bounds
from verifier.graph import Capture
from verifier.jobs import KernelProfile
from verifier.profiling.diagnosing import defects
from verifier.profiling.diagnosing.defects import BY_LITTLE, DIFFERENT, wrong_result_text
from verifier.profiling.nsight import counters
from verifier.report import ObservedKernel, Trial, WrongTensor
from verifier.task import Admission

OFF = "buffer was not updated as the task does: 2 of 96 elements are off; first at [16]: 4.60869707e-08 instead of 4.60615368e-08"


def wrong(detail: str, **trial) -> Attempt:
    """Returns a program whose last trial failed."""
    found = report(JOB, "wrong_result", message=detail)
    found.trials = [Trial(name="state after the timed calls", seed=0, ok=False, detail=detail, **trial)]
    first = passed()
    return Attempt(2, 1, replace(first.edit, source="y = 2\n"), found, base=first)


# Precision


def test_the_policy_says_which_operands_are_allowed():
    said = part("precision_fp32_strict")
    assert "three of fp16 after exact scaling" in said and "whatever their operands are" in said and "1.9e-6" in said
    assert "A single product of TF32, bf16 or fp16 operands is not allowed" in said


def test_floors_do_not_call_the_slower_arithmetic_the_fastest():
    floor = floor_of(10**6, 24 * 10**9, H200, "fp32-strict")
    assert "three of fp16 after exact scaling, which keep as many bits and which the policy allows as well" in floor.says()
    share = 3 * H200.gflops("3xtf32") / H200.half_gflops
    made = compiled(group("g1", ["linear"], 10**6, 24 * 10**9))
    said = digest.floors_text(made, situation(plan=made))
    assert f"(the policy also allows three of fp16, in {share:.2f} of that time)" in said and "fastest rate" not in said
    assert faster(H200, "bf16") == "", "one product is enough there"


def test_a_programs_time_is_given_over_both_floors():
    found, task = passed(), Capture(task="t", mode="train", flops=24 * 10**9, bytes_min=10**6)
    said = measured.over_floor(found, situation(found, capture=task))
    floor = floor_of(10**6, 24 * 10**9, H200, "fp32-strict")
    assert f"({found.report.timing.program_ms / floor.split_ms:.1f} times the floor with three of fp16)" in said
    assert "three of fp16" not in measured.over_floor(found, situation(found)), "bytes bound that floor"


def test_a_diagnosis_says_against_which_arithmetic_it_measures():
    assert "three of fp16" in compiled().ceilings.product_units and "three of fp16" not in compiled(precision="bf16").ceilings.product_units


def test_products_taken_out_of_a_recurrence_count_for_all_its_steps():
    product = SimpleNamespace(flops=33 * 10**6)
    facts = Facts("cuda", "latency", "fp32-strict", structure=SimpleNamespace(products=[product]), dependent_steps=256)
    assert large_products(facts) is None
    assert large_products(replace(facts, dependent_steps=0)) == "no product has 1 GFLOP or more"


def test_the_layout_of_wgmma_is_shown_where_it_can_be_used():
    strategies = [by_name("split-product")]
    assert shown_primitives() in fragments_text(strategies, H200, "") and warpgroup.SHARED.startswith(warpgroup.PRIMITIVES)
    assert fragments_text(strategies, H200, 'asm("wgmma.mma_async")') == "", "the program shows it"
    assert fragments_text([by_name("fuse-block")], H200, "") == ""
    assert fragments_text(strategies, H200.model_copy(update={"capability": (8, 0)}), "") == ""


def test_pytorchs_own_error_is_told_before_any_program_exists():
    admission = Admission(task="t", ok=True, eager_error=4e-7, error_bound=1.9e-6, decided=0.0)
    said = digest.task_text(situation(admission=admission))
    assert "with the task's inputs: 4e-07. So a program may err by 1.9e-06 there" in said and "decides no elements otherwise" in said
    assert "decides 0.2 % of an output's elements" in digest.own_error(admission.model_copy(update={"decided": 0.002}))[0]
    assert digest.own_error(Admission(task="t", ok=True)) == []


# The device


def test_a_device_says_how_many_clusters_it_can_hold_at_most():
    said = clusters(H200)
    assert "at most 66 of 2, 32 of 4, 16 of 8, 8 of 16 blocks" in said and "cudaOccupancyMaxActiveClusters" in said
    assert clusters(H200.model_copy(update={"capability": (8, 0)})) == ""
    assert "resident at once" not in clusters(H200.model_copy(update={"capability": (10, 0)})), "another layout"


def test_shared_memory_is_that_of_a_block_in_bytes():
    assert "shared memory: at most 232,448 bytes a block" in device_text(H200)
    assert "L2 of a core" in device_text(DeviceFigures.cpu(4))


def test_exchanges_of_a_recurrence_are_no_floor():
    said = steps_text(256, 3)
    assert "not a floor" in said and "within a cluster" in said and "needs fewer" in said and "needs fewer" not in steps_text(256)


def test_the_share_of_waiting_for_memory_is_always_told():
    stalls = {"wait": 0.3, "barrier": 0.2, "short_scoreboard": 0.1, "math_pipe_throttle": 0.08, "long_scoreboard": 0.05, "drain": 0.04}
    kernel = KernelProfile(name="k", own=True, calls=1, total_us=1, mean_us=1, share=1.0, stalls=stalls)
    said = of_kernels._stalls(kernel)
    assert "long scoreboard 5 %" in said and "math pipe" not in said and "others 12 %" in said


# Rules


def test_weights_may_be_laid_out_anew_once():
    said = part("honesty")
    assert "in the first call after they were loaded, which is not timed" in said and "`_load_from_state_dict`" in said
    assert "a cache keyed on inputs or addresses" not in said and "a cache of results" in said


def test_nan_and_orders_of_sums_are_settled():
    said = part("honesty")
    assert "where numbers are sorted or ranked, NaN has no defined place" in said and "No order of summation is required" in said


# Failures


def test_a_result_that_is_off_by_little_is_not_called_a_different_computation():
    found = wrong(OFF)
    assert bounds.CHAOTIC == defects.CHAOTIC
    assert wrong_result_text(found.report).startswith(f"{BY_LITTLE}: 5.5e-04 of its value, in 2 of 96 elements.")
    assert wrong_result_text(found.report).endswith("as eager does, by its operators if in doubt")  # this state is compared with eager's
    output = wrong(OFF.replace("buffer was not updated as the task does", "out"))
    assert wrong_result_text(output.report).endswith("check the order and the width of the sums that lead to it first")
    said = of_diagnosis.diagnosis_text(diagnosed(situation(found), found))
    assert said.startswith("Class: rounding beyond the bound, or a small defect.")


@pytest.mark.parametrize(
    ("detail", "trial"),
    [
        ("1 of 96 elements are off; first at [0]: 2 instead of 1", {}),
        ("the outputs were not delivered", {}),
        ("out: 1 of 9 elements are off; first at [0]: nan instead of 1", {}),
        ("1 of 96 elements are off; first at [0]: 1.0001 instead of 1", {"error": 0.5, "bound": 1e-6}),
        ("1 of 96 elements are off; first at [0]: 1 instead of 0", {}),
    ],
)
def test_a_result_that_is_off_by_much_or_in_another_way_is(detail, trial):
    assert wrong_result_text(wrong(detail, **trial).report) == DIFFERENT


def test_a_failure_says_that_no_further_trial_was_run_and_pytorchs_own_error():
    from agents.roles.evidence import failure_text

    found = wrong("off", error=3e-6, bound=2e-6, eager_error=4e-7)
    found.report.trials.append(Trial(name="task inputs 1", seed=1, ok=True))
    said = failure_text(found.report, "")
    assert "1 other trial passed: task inputs 1. No further one was run" in said and "PyTorch's own error 4e-07" in said


def test_the_best_program_gives_its_margin_and_where_its_operators_run():
    first, failed = passed(), wrong(OFF)
    first.edit = replace(first.edit, options=object(), changes=", ".join(["batch norm"] * 100))
    first.report.trials = [Trial(name="task inputs 1", seed=1, ok=True, error=1e-7, bound=1e-6, norm="a norm", eager_error=2e-7)]
    groups = [group("g1", ["convolution"], 1), group("g2", ["relu"], 1)]
    groups[0].space = "library"
    for one in groups:
        one.title = one.kinds[0]
    said = best_text(situation(first, failed, plan=compiled(*groups)))
    assert "and 50 more like these" in said and "[cut" not in said
    assert "(10 % of it, PyTorch's own 2e-07)" in said and "It passed what the program above failed ('state after the timed calls')" in said
    assert "- left to the library: g1 convolution\n- in own kernels: g2 relu" in said
    assert best_text(situation(failed)) == ""


def test_a_list_is_cut_between_items():
    assert whole_items("aa, bb, cc", 5) == "aa, and 2 more like these" and whole_items("aa, bb", 10) == "aa, bb"
    assert whole_items("a sentence without the separator", 5) == "a sentence without the separator"


def test_decisions_are_counted_where_they_were_recorded():
    found = passed().report
    trial = Trial(name="tiny", seed=1, ok=True, error=0.0398, bound=0.0398, norm="a norm", eager_error=0.01, decided=0.002, allowed=0.01)
    found.trials = [trial]
    said = measured.error_text(found)
    assert "0.2 % of the elements were decided differently than by PyTorch, of 1 % allowed" in said and "Not recorded" not in said
    found.trials = [trial.model_copy(update={"eager_error": None, "allowed": 0.0})]
    assert "Not recorded" in measured.error_text(found)


# Routes and plans


def test_attempts_that_are_left_are_told():
    settings, found = Settings(budget=Budget(candidates=8)), passed(number=2)
    said = left_text(settings, found, ["optimise", "next-step", "stop"])
    assert "At most 6 more programs can be tried, repairs included." in said and "`next-step` stays open" in said
    assert "combine gains" not in said
    last = left_text(settings, passed(number=6), ["optimise", "stop"])
    assert "At most 2 more programs" in last and "one change may combine gains that do not depend on each other" in last
    assert "combine gains" not in left_text(settings, passed(number=6), ["repair", "stop"]), "a repair combines nothing"
    assert "stay" not in left_text(settings, found, ["repair", "stop"]).replace("stays the base", "")
    assert "not limited" in left_text(Settings(budget=Budget(candidates=None)), found, ["stop"])


def test_a_program_that_says_it_was_not_captured_is_set_beside_its_plan():
    found = passed()
    found.report.own_share = 0.0
    assert "is captured" not in digest.untouched_text(found)
    found.edit = replace(found.edit, source=f'"""The task as it is: {digest.NOT_CAPTURED} (line 24)."""\n')
    assert "The graph behind this plan is captured" in digest.untouched_text(found)


def test_a_reason_for_a_new_plan_stands_beside_the_figures():
    found = passed()
    found.report.kernels = [
        ObservedKernel(name="down", calls=1, ms=0.1, share=0.3, own=True),
        ObservedKernel(name="up", calls=1, ms=0.2, share=0.7, own=True),
    ]
    said = spent_text(found)
    assert said.startswith("Measured on candidate 1: of ") and "(200 us in up, 100 us in down)" in said
    assert spent_text(None) == ""


def test_what_products_need_counts_a_fixed_capacity():
    found = passed()
    found.report.kernels = [ObservedKernel(name="k", calls=1, ms=1.0, share=1.0, own=True)]
    kernel = KernelProfile(name="k", own=True, calls=1, total_us=1000, mean_us=1000, share=1.0, metrics={counters.TENSOR_SHARE: 50.0})
    from test_requests import profile

    found.profile = profile(kernels=[kernel])
    task = Capture(task="t", mode="train", flops=24 * 10**9, bytes_min=10**6)
    assert "with every row of a fixed capacity" in products_text(found, situation(found, capture=task), {})


def test_a_small_error_is_told_by_the_measure_of_its_bound():
    part = WrongTensor(name="bn.running_var", wrong=2, elements=96, first=[16], value="4.61e-08", expected="4.6e-08", error=2.8e-4, bound=1e-4)
    said = wrong_result_text(wrong(OFF, wrong=[part]).report)
    assert "2.8e-04 where the bound is 1.0e-04, by the measure of errors, in 2 of 96 elements" in said and "of its value" not in said
