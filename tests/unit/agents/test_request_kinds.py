"""Kinds of faults that were found in requests rebuilt from recorded runs, each with the text that fixes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from agent_fakes import FakeClient
from scripted_models import diagnosis, judgement, optimise, plan, program
from test_llm_roles import run
from test_request_findings import COUNTED, counted
from test_requests import H200, compiled, group, passed, profile, situation

from agents.floor import floor_of, steps_text
from agents.roles import digest, measured, of_diagnosis, of_reference
from agents.roles.best_program import best_text
from agents.roles.evidence import wrong_tensors
from agents.roles.fragments import HALF, half_products
from agents.roles.group_rows import group_line, group_rows
from agents.roles.host_cost import at_call_time, host_text
from agents.roles.kernel_floors import KernelFloor, bounds_text, filled, in_batches, products_text
from agents.roles.llm_coder import unapplied
from agents.roles.llm_planner import taught
from agents.roles.llm_verifier import LlmVerifier
from agents.roles.of_device import device_text
from agents.roles.rules_verifier import by_rules, diagnosed, open_methods, refinable
from agents.roles.situation import Advice
from agents.settings import Settings
from agents.strategies import Facts, by_name
from compiler import DeviceFigures, Options
from compiler.families.product import half_cuda
from verifier.graph import Capture, GroupSizes, KeyRows
from verifier.jobs import HostCalls, KernelProfile
from verifier.parties.capturing.capture import capture
from verifier.profiling.diagnosing.call_time import call_time
from verifier.profiling.nsight import counters
from verifier.report import ObservedKernel, Trial, WrongTensor
from verifier.task import Admission

PRODUCT = Capture(task="t", mode="train", flops=24 * 10**9, bytes_min=10**6)  # 206 us as three products of TF32 on an H200


# What an empty call costs


def test_the_host_part_of_a_call_is_compared_with_an_empty_exchange_and_with_any_call():
    found = passed(ratio=3.0 / 0.52)
    found.profile, found.report.timing.round_trip_ms = profile(), 0.00436
    said = measured.measured_text(found, situation(found))
    assert "At most 4.36 us of a call are the clock's (an exchange without a call on this host), and about 15 us of the host are in any call" in said
    found.report.timing.round_trip_ms = 0.0
    assert "About 15 us of the host are in any call" in measured.measured_text(found, situation(found)), "an old report has no such figure"


def test_nothing_is_told_of_the_host_where_the_device_hardly_waits_for_it():
    found = passed(ratio=3.0 / 0.52)
    host = HostCalls(device_us=516, kernel_us=516, begin_us=1, gap_us=1, after_us=2, waits=0)
    assert host_text(found.report, call_time(found.report, profile(host=host))) == "" and host_text(found.report, None) == ""
    assert host_text(None, call_time(None, profile())) == "", "a profile of the reference has no clock"


def test_gaps_without_names_are_said_to_be_unnamed():
    found = passed(ratio=3.0 / 0.52)
    known = profile()
    assert "Between which pieces of work the device waits was not recorded" in host_text(found.report, call_time(found.report, known))
    known.host.gaps = {"combine_kernel": 30.0}
    assert "was not recorded" not in host_text(found.report, call_time(found.report, known))


# Idle time under a profiler


def test_idle_time_of_a_profiled_reference_is_scaled_to_the_time_of_a_call():
    slowed = profile(wall_us_per_iteration=5306.0)
    known = situation(reference=slowed)
    known.admission = Admission.model_construct(ok=True, flags=[], inputs=[], parameters=0, eager_ms=0.806)
    said = of_reference.profile_text(slowed, measured.eager_ms(known))
    assert (
        "under which a call takes 5.31 ms" in said and "Of a call of 806 us the device works 306 us and has nothing to do for 500 us (62 %)" in said
    )
    assert "94 %" not in said, "the share under the profiler stands nowhere"
    assert measured.eager_ms(situation(passed())) == pytest.approx(3.0) and measured.eager_ms(situation()) is None


def test_an_unknown_or_impossible_time_of_a_call_leaves_the_profile_as_it_is():
    for call_ms in (None, 0.2, 9.0):  # not timed, shorter than the device's work, longer than under the profiler
        said = of_reference.profile_text(profile(), call_ms)
        assert "Of a call of 536 us" in said and "the share of idle time is an upper limit" in said


def test_parts_of_a_scaled_call_add_up():
    spent = at_call_time(call_time(None, profile()), 400.0)
    assert spent.before_us + spent.gaps_us + spent.after_us == pytest.approx(94.0) and spent.host_us == pytest.approx(94.0)


# What bounds a kernel, and padding


def made_by_the_compiler(share: float = 80.0):
    """Returns a program with one product on tensor cores and its plan. Its products need 514 us of 900."""
    found, product = passed(), group("g1", ["linear", "relu"], 42 * 10**6, 60 * 10**9)
    found.report.kernels = [ObservedKernel(name="linear_relu_kernel", calls=1, ms=0.9, share=0.98, own=True)]
    found.profile = counted(name="linear_relu_kernel", metrics={**COUNTED, counters.TENSOR_SHARE: share}).profile
    found.edit = replace(found.edit, options=Options())
    made = compiled(product)
    made.plan.own = [product]
    return found, situation(found, plan=made)


def test_a_kernel_says_how_long_its_products_need_tensor_cores():
    found, known = made_by_the_compiler()
    said = measured.measured_text(found, known)
    assert "floor of what it computes and hands on: 514 us, by its operations; tensor cores busy 1.40 times as long as its products need" in said
    assert "0.85 times as long is usual for three of TF32 by wgmma and 1.3 times by mma.sync, 0.42 and 0.65 times for three of 16 bits" in said
    assert "clearly longer is padding of tiles" in said
    assert "In the kernels with counters" not in said, "one figure is enough"


def test_a_kernel_without_counters_or_products_is_not_compared():
    assert KernelFloor(0.5, 0.1, 0.5).says(900, None) == "floor of what it computes and hands on: 500 us, by its operations"
    assert KernelFloor(0.5, 0.5, 0.01).says(900, 0.5).endswith("by its bytes")
    found, known = made_by_the_compiler(share=0.0)
    assert "times as long" not in measured.measured_text(found, known)


def test_a_program_of_a_model_is_compared_as_a_whole():
    found = counted()
    found.report.kernels = [ObservedKernel(name="product", calls=1, ms=0.3, share=1.0, own=True)]
    said = products_text(found, situation(found, capture=PRODUCT), {})
    assert said.startswith(
        "In the kernels with counters, tensor cores are busy for 132 us of a call, 0.64 times as long as the task's products need."
    )
    old = DeviceFigures.h200().model_copy(update={"capability": (8, 0)})
    assert "About as long is usual; clearly longer" in products_text(found, situation(found, capture=PRODUCT, plan=compiled(figures=old)), {})
    found.profile.kernels[0].metrics = {**COUNTED, counters.TENSOR_SHARE: 1.0}
    assert products_text(found, situation(found, capture=PRODUCT), {}) == "", "hardly any use of tensor cores"


def test_kernels_are_added_up_by_what_bounds_their_floors():
    found = passed()
    found.report.kernels = [
        ObservedKernel(name=name, calls=1, ms=ms, share=ms, own=True) for name, ms in (("a", 0.2), ("b", 0.1), ("c", 0.3), ("d", 0.4))
    ]
    floors = {name: KernelFloor(0.1, 0.1 if name in "ab" else 0.01, 0.01 if name in "ab" else 0.1) for name in "abcd"}
    said = bounds_text(found, floors)
    assert said == "Kernels whose floor is set by bytes take 300 us (floors 200 us), those by operations 700 us (floors 200 us)."
    assert bounds_text(found, {"a": floors["a"], "c": floors["c"]}) == "", "two kernels stand beside each other anyway"
    assert bounds_text(found, dict.fromkeys("abcd", floors["a"])) == "", "one kind"


def test_a_floor_says_the_time_of_three_products_of_sixteen_bits_where_operations_bound_it():
    assert "as three of fp16 after exact scaling" in floor_of(10**6, 24 * 10**9, H200, "fp32-strict").says()
    for floor in (floor_of(10**9, 10**9, H200, "fp32-strict"), floor_of(10**6, 24 * 10**9, H200, "bf16")):
        assert "three of fp16" not in floor.says()
    assert "three of fp16" not in floor_of(10**6, 24 * 10**9, H200, "fp32-strict").says(brief=True)


# Methods


def test_a_change_within_a_structure_that_the_program_has_goes_by_its_name():
    found = counted()
    found.edit = replace(found.edit, strategy="persistent-recurrence + vector-math")
    known = situation(found, capture=PRODUCT)
    assert refinable(known) == ["persistent-recurrence", "split-product"], "tensor cores under fp32-strict are used by splitting"
    ruled, offered = open_methods(known, diagnosed(known, found)), LlmVerifier("m")._offered(known, diagnosed(known, found))
    assert offered[: len(ruled)] == ruled and set(refinable(known)) <= set(offered)
    assert by_rules(known, found).method not in refinable(known), "rules alone would repeat it"
    known.settings = Settings(device="cuda:0")
    assert refinable(situation()) == []


def test_a_program_of_one_kernel_is_not_handed_back():
    facts = Facts("cuda", "latency", headroom=9.0, kernels=1, own_kernels=1)
    assert "it is eager PyTorch" in by_name("leave-to-library").refuses(facts)
    assert by_name("leave-to-library").refuses(replace(facts, kernels=2)) is None


def test_a_whole_block_cures_intermediate_results_that_lie_between_products():
    from agents.diagnosis import allowed

    facts = Facts("cuda", "memory", headroom=9.0, kernels=5, own_kernels=5, products=True, reductions=True, faults=("split-fusion",))
    assert "fuse-block" in allowed(facts)[:2] and by_name("fuse-block").cures_when(replace(facts, products=False)) is False


def test_a_plan_may_drop_waits_that_the_profile_of_the_reference_shows():
    for waits, there in ((8, True), (0, False)):
        host = HostCalls(device_us=306, kernel_us=306, begin_us=130, gap_us=60, after_us=40, waits=waits)
        known = situation(reference=profile(host=host))
        names = {s.name for s in digest.catalogue_for(of_reference.facts_of_reference(known.plan.data, known), "cuda")}
        assert ("drop-sync" in names) is there
    known.reference = profile(host=host.model_copy(update={"waits": 8}))
    known.attempts = [passed()]
    known.attempts[0].profile = profile()
    assert of_reference.facts_of_reference(known.plan.data, known).faults == (), "the best program does not wait any more"


def test_instructions_for_what_the_program_does_already_are_left_out_beside_an_order():
    found, chosen = passed(), [by_name("fuse-matmul-tail"), by_name("algebraic-rewrite")]
    found.edit = replace(found.edit, source='"""A program.\n\nStrategies: split-product, fuse-matmul-tail.\n"""\n')
    advice = Advice(diagnosed(situation(found), found), "optimise", "so", "fuse-matmul-tail + algebraic-rewrite", move="Cut x once.")
    assert [s.name for s in unapplied(chosen, found, advice)] == ["algebraic-rewrite"]
    assert unapplied(chosen, found, replace(advice, move=None)) == chosen and unapplied(chosen, None, None) == chosen


# What a judge and a repair need


@pytest.mark.asyncio
async def test_a_judge_sees_the_rules_the_change_and_the_best_program():
    models, _ = await run(
        {
            "planner/plan": [plan("s1")],
            "coder/first": [program(1.5)],
            "verifier/diagnose": [optimise, diagnosis("stop")],
            "coder/optimise": [program(status="wrong_result", message="off by one")],
            "verifier/judge": [judgement()],
            "coder/repair": [program(1.8, tag="right")],
        },
        client=FakeClient(),
    )
    request = models.of("verifier/judge")[0]
    said = "\n".join(message.content for message in request.messages)
    assert "## Rules of a program" in said and "## What the verifier does" in said and "Precision policy fp32-strict" in said
    assert "The change that was tried: " in said and "## Best program\n\nCandidate 1: 1.50x over eager" in said
    assert "within 1e-4 by the same measure" in said, "the rule for buffers"


def test_a_repair_lists_groups_without_floors():
    payload = {"steps": [{"id": "g1", "space": "own kernel", "title": "linear", "operators": ["linear"]}]}
    made = compiled(group("g1", ["linear"], 10**6, 10**9))
    assert "at least" in digest.groups_text(payload, made) and "at least" not in digest.groups_text(payload, made, floors=False)


# The plan


def test_a_program_without_a_kernel_of_its_own_carries_out_none_of_the_plan():
    found = passed()
    assert digest.untouched_text(found) == ""
    for share, there in ((0.0, True), (0.4, False)):
        found.report.own_share = share
        assert ("carries out none of it" in digest.untouched_text(found)) is there


def test_operators_of_a_group_are_all_named_or_counted():
    assert digest.kinds_text(["add"] * 14).count("add") == 14 and "more" not in digest.kinds_text(["add"] * 14)
    assert digest.kinds_text(["mul", *["add"] * 49]).endswith(f" and {50 - digest.MOST_KINDS} more")
    assert digest.kinds_text([*["linear", "tanh"] * 30, "cat"]) == "30 times (linear, tanh), then cat", "the passes of an unrolled loop"


def test_a_new_plan_is_told_the_best_programs_once():
    first = passed(1)
    second = passed(2, ratio=3.0, base=first)
    second.parent = 1
    assert taught(situation(first, second)).count("Best program of each line") == 1


def test_a_first_program_is_known_by_the_strategies_of_its_header():
    first = passed(1)
    first.edit = replace(first.edit, source='"""A program.\n\nStrategies: own-scan, vectorise.\n"""\n')
    second = passed(2, ratio=3.0, base=first)
    second.parent, second.edit = 1, replace(second.edit, strategy="fuse-block")
    assert "by own-scan + vectorise, then fuse-block; 2 programs" in taught(situation(first, second))


def test_the_short_kernels_of_a_program_are_named():
    found = passed()
    found.report.kernels = [ObservedKernel(name=f"k{n}", calls=1, ms=1.0 / (n + 1), share=0.05, own=n != 20) for n in range(24)]
    said = "\n".join(measured.kernel_times(found.report, None))
    assert "- 8 more (own: k16, k17, k18, k19, k21, k22, ...): " in said


# Rates of the device


def test_the_bandwidth_of_the_cache_is_given_where_it_was_measured():
    assert "- cache shared by all: 52.4 MB; " in device_text(H200)
    known = DeviceFigures.of({"device": "cuda:0", "cache_gbs": 5512.4})
    assert "- cache shared by all: 52.4 MB, 5,512 GB/s by a plain copy within it; " in device_text(known)
    slow = DeviceFigures.of({"device": "cuda:0", "cache_gbs": 3040.0})
    assert "- cache shared by all: 52.4 MB; " in device_text(slow), "no cache is slower than the memory behind it: the copy was too short"


def test_clusters_and_exchanges_are_given_as_measured():
    assert "at most 66 of 2" in device_text(H200)
    measured_figures = {"clusters_2": 66, "clusters_8": 16, "cluster_us_2": 0.21, "cluster_us_8": 0.26, "grid_us": 1.34, "cluster_read_gbs": 3300.0}
    known = DeviceFigures.of({"device": "cuda:0", "capability": "9.0", **measured_figures})
    assert known.clusters == ((2, 66), (8, 16)) and hash(known)
    said = device_text(known)
    assert "Clusters resident at once on this device, where a block takes a whole multiprocessor: 66 of 2, 16 of 8 blocks" in said
    assert "takes 0.21 us of 2, 0.26 us of 8 (through L2, with a barrier of one block on each multiprocessor: 1.3 us)" in said
    assert "at 3,300 GB/s" in said and "at most 66" not in said
    recurrence = steps_text(100, 1, known)
    assert "each costs 1.3 us by a barrier of the grid (measured), 134 us together" in recurrence and "its cost is under Device" in recurrence


# Rows of groups


def test_the_rows_of_groups_are_told_with_the_tiles_that_they_fill():
    told = "Rows a group, counted in one call with the task's inputs (topk, 2 of 4 for each of 16 rows): "
    few = GroupSizes(source="topk, 2 of 4 for each of 16 rows", rows=[65, 64, 0, 128])
    assert group_line(few).startswith(f"{told}65, 64, 0, 128 (tiles of 64 rows: 5, 80% full; tiles of 128 rows: 3, 67% full)")
    many = GroupSizes(source="offsets in input 1", rows=[0] * 2 + [64] * 30)
    assert "0 to 64, median 64, in 32 groups, 2 without any" in group_line(many)


def test_the_rows_of_a_key_are_told():
    found = Capture(task="t", mode="train", key_rows=[KeyRows(source="index_add of 300 rows at 20 keys", median=15.0, most=31, empty=1)])
    [said] = group_rows(found)
    assert said.endswith("(index_add of 300 rows at 20 keys): median 15, at most 31, none at 1 of them.")


class Batched(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = torch.nn.Parameter(torch.zeros(4, 8, 8))

    def forward(self, rows, scores):
        return torch.bmm(rows, self.experts) + scores.topk(1, dim=-1).values.sum()


def test_the_rows_of_a_fixed_capacity_that_were_routed_are_told():
    found = capture(Batched(), [torch.zeros(4, 10, 8), torch.randn(32, 4)], "a task", "eval")
    assert filled(found) == "; of the 40 rows of products over groups, at most 32 were routed to one in a call"
    assert filled(found.model_copy(update={"group_sizes": []})) == "" and in_batches(found)
    single = capture(torch.nn.Linear(8, 8), [torch.zeros(4, 8)], "a task", "eval")
    assert not in_batches(single), "no group, so nothing that stays empty"


# Tensors of a wrong result


def test_every_wrong_tensor_is_listed_with_its_pattern():
    parts = [
        WrongTensor(name="out", wrong=4, elements=96, first=[16], value="1.5", expected="1", error=0.25, bound=1e-6, where="dimension 0: 16 of 24"),
        WrongTensor(name="picked", wrong=1, elements=9, first=[0, 2], value="3", expected="4"),
    ]
    trial = Trial(name="negative", seed=1, ok=False, detail="out: 4 of 96 elements are off", compared=7, wrong=parts)
    assert wrong_tensors(trial) == [
        "- in it, 7 outputs, inputs that the task changes, and buffers were compared: 2 off, the others right",
        "  - out: 4 of 96, first [16]: 1.5 instead of 1; largest error 0.25, bound 1e-06; dimension 0: 16 of 24",
        "  - picked: 1 of 9, first [0, 2]: 3 instead of 4",
    ]


def test_the_best_program_gives_its_error_where_the_newest_failed():
    best, failed = passed(), passed()
    best.report.trials = [Trial(name="state", seed=0, ok=True, output="bn.running_var", error=2e-5, bound=1e-4)]
    failed.report.status, failed.report.trials = "wrong_result", [Trial(name="state", seed=0, ok=False)]
    told = situation(best, failed)
    said = best_text(told)
    assert "In 'state' its largest error is 2e-05 of a bound of 0.0001, in bn.running_var." in said and "not recorded" not in said


def test_a_repair_that_no_model_has_judged_has_no_sentence_of_the_verifier():
    found = diagnosis_of_defect()
    advised = Advice(found, "repair", "It has to be right before it can be faster: the evidence goes back to the Coder.")
    assert "Verifier:" not in of_diagnosis.diagnosis_text(found, advised)
    assert "Verifier: the sum" in of_diagnosis.diagnosis_text(found, Advice(found, "repair", "the sum is short"))


def diagnosis_of_defect():
    failed = passed()
    failed.report.status, failed.report.message = "wrong_result", "off"
    return diagnosed(situation(failed), failed)


# Dependent steps and device functions


def test_a_step_of_a_recurrence_says_how_long_its_warps_wait():
    kernel = KernelProfile(
        name="gru_kernel", calls=1, total_us=1.0, mean_us=1.0, share=0.9, own=True, stalls={"barrier": 0.06, "long_scoreboard": 0.05}
    )
    found = profile().model_copy(update={"kernels": [kernel]})
    said = measured.exchange_share(found, 2.39)
    assert said == "; warps of gru_kernel wait 5 % of that for memory and 6 % at barriers, 0.26 us, exchanges of the state included"
    assert measured.exchange_share(None, 2.39) == ""


def test_products_of_fp16_by_wgmma_are_told_as_the_compiler_lays_them_out():
    text = half_products()
    assert "line * 128 + ((k / 8 ^ line % 8) << 4)" in text and "return DEPTH_INNER ? line * 128 + ((k / 8 ^ line % 8) << 4)" in half_cuda.COPIES
    assert "1ull << 16 | 64ull << 32 | 1ull << 62" in HALF and "1024ull >> 4 << 32 | 1ull << 62" in half_cuda.GROUP_HEAD
    assert "m64n128k16.f32.f16.f16" in HALF and "m64n128k16.f32.f16.f16" in half_cuda.group_product("float16", 128)


def test_the_clock_rate_is_given_where_it_is_known():
    known = DeviceFigures.of({"device": "cuda:0", "clock_mhz": 1980})
    assert "reads 128 bytes of it a clock (32 banks; at most 1,980 MHz)" in device_text(known)


def test_a_kernel_below_its_floor_says_what_the_floor_leaves_out():
    floor = KernelFloor(0.0109, 0.0109, 0.0)
    assert "10.9 us, by its bytes from memory (so it is below its floor: a cache holds some of them" in floor.says(7.9, None)
    assert floor.says(20.0, None).endswith("10.9 us, by its bytes")
