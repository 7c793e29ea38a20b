"""Figures in a request that a second reader could not check, could misread, or found to be contradictory: each kind with the text of a request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_request_findings import COUNTED, counted
from test_requests import H200, compiled, group, passed, profile, situation

from agents.diagnosis import facts_of, structures
from agents.floor import groups_of, steps_text
from agents.roles import digest, measured, of_kernels, of_reference
from agents.roles.evidence import held_by_others
from agents.roles.llm_coder import names_for
from agents.roles.llm_planner import told
from agents.roles.llm_verifier import methods_text
from agents.roles.names import LONGEST_NAME, short_name
from agents.roles.of_device import device_text, tensor_cores
from agents.roles.rules_verifier import AGAIN, by_rules, crowded_out, diagnosed
from agents.settings import Settings
from agents.strategies import Facts, named_in
from compiler import DeviceFigures, Options
from verifier.graph import Capture, Graph
from verifier.jobs import KernelProfile
from verifier.profiling.diagnosing.structure import Product, Structure
from verifier.profiling.nsight import counters
from verifier.report import ObservedKernel, Trial

TOPK = [("gather", 1, 0.020), ("digits", 4, 0.032), ("sums", 4, 0.008), ("sort", 1, 0.005)]


def with_topk(share: float = 0.065):
    """Returns a program whose `topk` takes several library kernels."""
    found = passed()
    found.report.kernels = [
        ObservedKernel(name="at::native::" + name, calls=calls, ms=ms, share=share / 4, own=False, via="aten::topk") for name, calls, ms in TOPK
    ]
    found.report.kernels += [
        ObservedKernel(name="product", calls=1, ms=0.2, share=1 - share, own=True),
        ObservedKernel(name="x", calls=1, ms=0, share=0, own=False),
    ]
    return found


def test_kernels_of_one_operator_are_added_up():
    said = "\n".join(measured.kernel_times(with_topk().report, None))
    assert "Added up by the operator that launched them: aten::topk 65.0 us in 10 launches of 4 kernels, 6 % of the device's time." in said
    assert "Added up" not in "\n".join(measured.kernel_times(with_topk(0.04).report, None)), "a share that no change can show"
    assert "Added up" not in "\n".join(measured.kernel_times(passed().report, None))


def test_copies_and_fills_are_no_launches_and_parts_of_launches_are_told():
    found = passed()
    found.report.kernels = [
        ObservedKernel(name="Memcpy DtoH", calls=41, ms=0.0923, share=0.5, own=False),
        ObservedKernel(name="Memset", calls=1, ms=0.011, share=0.1, own=False),
        ObservedKernel(name="gemm", calls=20.3, ms=0.4082, share=0.4, own=False),
    ]  # fmt: skip
    said = "\n".join(measured.kernel_times(found.report, None))
    assert "92.3 us a call in 41 copies, 2.3 us each" in said and "11.0 us a call in one fill" in said
    assert "408.2 us a call in 20.3 launches, 20.1 us each" in said


def test_names_that_differ_at_their_end_stay_two():
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_{}_kernel__5x_cublas"
    one, other = short_name(name.format("segment_k_off")), short_name(name.format("splitk_reduce"))
    assert one != other and "..." in one and len(one) <= LONGEST_NAME
    assert short_name("k" * 100) == "k" * 100


def test_own_kernels_without_counters_are_named():
    found = counted()
    short = KernelProfile(name="prepare", own=True, calls=5, total_us=10, mean_us=2, share=0.01)
    found.profile.kernels += [short, short.model_copy(update={"name": "Memset", "own": False})]
    assert "\n- prepare: counters were not measured" in of_kernels.resources_text(found, H200)
    found.profile.kernels.append(short.model_copy(update={"name": "gemm", "own": False}))
    assert "\n- prepare, other kernels of libraries: counters were not measured" in of_kernels.resources_text(found, H200)


def test_the_legend_says_what_waves_and_peaks_are_and_that_stalls_are_the_largest():
    said = of_kernels.resources_text(counted(stalls={"wait": 0.3, "barrier": 0.2, "drain": 0.15, "membar": 0.09, "branch_resolving": 0.06}), H200)
    assert "Waves count launched blocks, those that return at once included." in said and "own peaks (which no program sustains" in said
    assert "stalls: wait 30 %, barrier 20 %, drain 15 %, others 15 %" in said and "Stalls are the 3 largest shares" in said


def test_shared_memory_limits_the_blocks_only_as_far_as_the_hardware_does():
    """With 213 registers per thread and 72 KiB per block, registers allow 2 blocks and shared memory 3, although the driver set aside enough for only
    2."""
    limits = {counters.OCCUPANCY_LIMIT[name]: blocks for name, blocks in (("registers", 2), ("shared_mem", 2), ("warps", 16), ("blocks", 32))}
    found = counted(metrics=COUNTED | limits, block=(128, 1, 1), registers=213, shared_bytes=73728)
    assert "resident blocks a multiprocessor: 2 (by registers; shared memory 3, block size 16)" in of_kernels.resources_text(found, H200)
    found = counted(metrics=COUNTED | limits | {counters.OCCUPANCY_LIMIT["registers"]: 16}, block=(128, 1, 1), registers=32, shared_bytes=8192)
    assert "(by the shared memory that the driver set aside for this launch; registers 16, " in of_kernels.resources_text(found, H200)
    found = counted(metrics=COUNTED | limits | {counters.OCCUPANCY_LIMIT["registers"]: 8}, block=(256, 1, 1), registers=22, shared_bytes=0)
    assert "shared memory 2" not in of_kernels.resources_text(found, H200), "block slots run out first"


def test_products_say_by_which_instruction_the_rates_are_reached():
    assert "by wgmma; mma.sync reaches about four fifths of them at most" in device_text(H200)
    assert "wgmma;" not in tensor_cores(DeviceFigures.cpu(2))
    tensor = {"arch": "sm_90", "tensor_instructions": 12}
    assert "tensor cores (mma.sync) 44 %" in of_kernels.resources_text(counted(resources=tensor | {"wgmma_instructions": 0}), H200)
    assert "tensor cores (wgmma) 44 %" in of_kernels.resources_text(counted(resources=tensor | {"wgmma_instructions": 12}), H200)
    assert "tensor cores 44 %" in of_kernels.resources_text(counted(resources=tensor), H200), "an old record does not tell"


def test_counters_that_cover_a_part_are_not_those_of_the_whole_device_time():
    found = counted(metrics=COUNTED | {counters.SM_SHARE: 64.0})
    found.profile.host.device_us = 480
    known = situation(found, capture=Capture(task="t", mode="train", flops=10**9, bytes_min=10**6))
    assert "busy while the device works" in diagnosed(known, found).text
    found.profile.kernels[0].share = 0.7
    found.profile.kernels.append(KernelProfile(name="topk", own=False, calls=5, total_us=600, mean_us=120, share=0.3))
    assert "busy in the kernels with counters, 70 % of the time in kernels" in diagnosed(known, found).text


def test_a_request_without_a_measured_eager_says_between_what_a_call_lies():
    known = situation(reference=profile(wall_us_per_iteration=4850.0))
    said = digest.task_text(known)
    assert "Eager PyTorch has not been timed yet: a call takes between " in said and "4.85 ms (under a profiler, which slows the host)" in said
    assert "the time of a call is the one under Task" in of_reference.profile_text(known.reference)
    assert "can only be estimated from its floor" in of_reference.profile_text(None) and "Eager" not in digest.task_text(situation())


def test_an_error_at_its_bound_says_what_that_means():
    found = passed()
    trials = [Trial(name=name, seed=1, ok=True, error=error, bound=0.04, norm="max |a-b|") for name, error in (("tiny", 0.0398), ("large", 0.01))]
    found.report.trials = trials
    said = measured.error_text(found.report)
    assert "Elements that a decision changed" in said and "In each of the other trials, the error is at most 25 % of that trial's own bound" in said
    found.report.trials = trials[1:]
    assert "decision" not in measured.error_text(found.report)


def test_memory_that_others_held_is_told_with_the_failure():
    message = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which {} GiB is free. Including "
        "non-PyTorch memory, this process has 14.79 GiB memory in use."
    )
    assert "63.3 GiB of the device's 79.2 were held by other processes" in held_by_others(message.format("1.10"))
    assert held_by_others(message.format("60.10")) == "" and held_by_others("it broke") == ""


def test_names_for_a_change_leave_out_what_the_precision_rules_out():
    assert "half-product" not in names_for(Settings(device="cuda:0")) and "coalesce" in names_for(Settings(device="cuda:0"))
    assert "half-product" in names_for(Settings(device="cuda:0", precision="bf16"))


def test_a_selection_that_takes_much_of_the_time_has_a_method():
    structure = Structure(operators=["aten.topk.default"], sorted_lengths=[64_000], products=[], rows=[])
    facts = Facts("cuda", "memory", headroom=3.0, structure=structure)
    assert "own-order" not in structures(facts), "a sorting network is not for rows of 64,000 elements"
    assert "own-order" in structures(replace(facts, selection_share=0.34)) and "own-order" not in structures(replace(facts, selection_share=0.02))
    found = with_topk(0.34)
    known = situation(found)
    seen = facts_of(found.report, None, known.planned.data.ceilings, diagnosed(known, found), None)
    assert seen.selection_share == pytest.approx(0.34)


def test_products_on_fp32_units_and_launched_blocks_without_work_have_methods():
    product = Product(batch=8, m=512, n=4096, k=4096)
    facts = Facts("cuda", "launch", headroom=9.0, capability=(9, 0), structure=Structure(products=[product], rows=[], groups=True), slowest_waves=2.9)
    assert {"split-product", "persistent-kernel"} <= set(structures(facts))
    assert "split-product" not in structures(replace(facts, on_tensor_cores=True)), "the program has it"
    assert "persistent-kernel" not in structures(replace(facts, structure=Structure(products=[product], rows=[])))


def test_methods_that_the_program_has_come_last_and_are_marked():
    source = '"""A program.\n\nStrategies: split-product, own-scan,\nvectorise.\n"""\n'
    assert named_in(source) == ("split-product", "own-scan", "vectorise") and named_in("x = 1") == ()
    said = methods_text(["own-scan", "fuse-block"], named_in(source))
    new, _, old = said.partition("The program applies these already; a change within one of them goes by its name:")
    assert "`fuse-block`" in new and "`own-scan`" in old and "already" not in methods_text(["own-scan"])


def test_a_step_of_several_exchanges_costs_each_of_them():
    said = steps_text(256, 3)
    assert "each has up to 3 exchanges" in said and "768 us together" in said
    assert "exchanges" not in steps_text(256) and "256 us together" in steps_text(256)


def test_the_traffic_of_the_groups_is_told_where_it_exceeds_the_tasks():
    found = passed()
    groups = [group("g1", ["convolution"], 900 * 10**6), group("g2", ["max pool"], 600 * 10**6)]
    said = measured.measured_text(found, situation(found, plan=compiled(*groups)))
    assert "With each of the plan's 2 groups fused by itself, 1.5 GB move in 357 us." in said
    assert "fused by itself" not in measured.measured_text(found, situation(found, plan=compiled(group("g1", ["relu"], 42 * 10**6))))


def test_equal_groups_that_need_each_other_are_told_from_those_that_do_not():
    """In a recurrence, the products of the inputs depend on nothing, while each product of the state depends on the previous one."""
    spec = {"shape": [64, 256], "dtype": "float32"}

    def node(name, op, *reads):
        return {"name": name, "op": op, "args": [{"ref": read} for read in reads], "outputs": [spec]}

    nodes, state = [], "x12"
    for at in range(12):
        nodes += [node(f"in{at}", "aten.linear.default", f"x{at}", "w"), node(f"of{at}", "aten.linear.default", state, "w")]
        nodes += [node(f"state{at}", "aten.sort.default", f"both{at}")]
        nodes.insert(-1, node(f"both{at}", "aten.add.Tensor", f"in{at}", f"of{at}"))
        state = f"state{at}"
    weight = {"name": "w", "kind": "parameter", "target": "w", "spec": {"shape": [256, 256], "dtype": "float32"}}
    inputs = [{"name": f"x{at}", "kind": "user", "spec": spec, "index": at} for at in range(13)]
    graph = Graph.model_validate({"inputs": [*inputs, weight], "nodes": nodes, "outputs": [{"ref": state}], "output_tree": 0})
    groups = [group(f"g{at}", [made["name"]], 10**6) for at, made in enumerate(nodes, start=1)]
    for one in groups:
        kind = one.operators[0].rstrip("0123456789")
        one.kinds = ["linear" if kind in ("in", "of") else kind]
    found = compiled(*groups)
    found.plan.graph = graph
    said = digest.floors_text(found, situation())
    assert "- g1-g45 every 4, each: linear: " in said, "the products of the inputs"
    assert "- g2-g46 every 4, each: linear: " in said and said.count("Each needs the one before.") == 3
    assert [one.id for one in groups_of(found, ["g1-g45 every 4"])] == [f"g{at}" for at in range(1, 46, 4)]


def test_ids_of_groups_are_a_list_or_a_range():
    assert digest.ids(["g1", "g2"]) == "g1, g2" and digest.ids([f"g{at}" for at in range(3, 20)]) == "g3-g19"
    assert digest.ids(["g1", "g2", *(f"g{at}" for at in range(9, 20))]).endswith("and 6 more")


def test_a_program_that_others_left_no_memory_is_tried_once_more():
    found = passed()
    found.report.status = "crashed"
    found.report.message = (
        "OutOfMemoryError when the program was constructed: GPU 0 has a total capacity of 79.18 GiB of which 1.10 GiB is free. Including "
        "non-PyTorch memory, this process has 14.79 GiB memory in use."
    )
    assert crowded_out(found) and by_rules(situation(found), found).reason == "Other processes held the device's memory: it is tried again."
    found.edit = replace(found.edit, title=AGAIN)
    assert not crowded_out(found), "the second time, the evidence goes to a model"
    found.edit, found.report.message = replace(found.edit, title="x"), "it broke"
    assert not crowded_out(found)


def test_a_loop_over_experts_is_said_to_stand_as_other_operators():
    assert "A loop over groups (experts) in the reference is shown here" in digest.floors_text(
        compiled(group("g1", ["grouped product"], 1)), situation()
    )
    assert "A loop over groups" not in digest.floors_text(compiled(group("g1", ["linear"], 1)), situation())


def test_a_kernel_that_the_compiler_printed_has_the_floor_of_what_it_computes():
    found, product = passed(), group("g1", ["linear", "relu"], 42 * 10**6, 60 * 10**9)
    found.report.kernels = [
        ObservedKernel(name="linear_relu_kernel", calls=1, ms=0.9, share=0.98, own=True),
        ObservedKernel(name="x", calls=1, ms=0, share=0.02, own=True),
    ]
    made = compiled(product)
    made.plan.own = [product]
    assert "floor of what it computes" not in measured.measured_text(found, situation(found, plan=made)), "a model changed it"
    found.edit = replace(found.edit, options=Options())
    said = measured.measured_text(found, situation(found, plan=made))
    assert "- linear_relu_kernel (own): 900.0 us a call in one launch, 98 % of the device's time; floor of what it computes" in said
    assert "hands on: 514 us, by its operations" in said


def test_a_step_leaves_out_strategies_that_its_contract_rules_out():
    step = {"id": "s2", "title": "scatter", "strategies": ["grouped-product", "atomic-sums", "unknown"], "contract": "no atomics, deterministic"}
    assert "strategies: grouped-product; unknown" in digest.step_text(step)
    assert "atomic-sums" in digest.step_text({**step, "contract": "fp32"})


def test_a_new_plan_is_told_which_programs_each_step_has():
    first, second = passed(1), passed(2)
    first.edit, second.report.status = replace(first.edit, step="s1"), "wrong_result"
    second.edit = replace(second.edit, step="s1")
    known = situation(first, second)
    assert told({"id": "s1", "title": "t"}, known).endswith("programs made for it: candidate 1 (passed), candidate 2 (wrong result)")
    assert told({"id": "s2", "title": "t"}, known).endswith("programs made for it: none")


def test_a_class_of_the_device_says_how_much_of_the_call_is_idle():
    found = counted(metrics=COUNTED | {counters.SM_SHARE: 64.0})
    known = situation(found, capture=Capture(task="t", mode="train", flops=10**9, bytes_min=10**6))
    found.profile.host.device_us = 400
    assert "; the device is idle for 20 % of the call" in diagnosed(known, found).text
    found.profile.host.device_us = 490
    assert "idle" not in diagnosed(known, found).text
