"""Faults found in requests by second readers: the text of a complete request is searched for each kind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_requests import H200, JOB, compiled, group, passed, profile, situation

from agents.diagnosis import SHOWN_METHODS, Cause, Diagnosis, Evidence, allowed
from agents.floor import floor_of_group, floor_of_step, groups_of
from agents.roles import digest, measured, of_diagnosis, of_kernels
from agents.roles.llm_coder import method_text
from agents.roles.names import short_name
from agents.roles.of_device import device_text
from agents.roles.rules_verifier import diagnosed, open_methods
from agents.roles.situation import Advice, Attempt
from agents.strategies import Facts, by_name
from verifier.graph import Capture, Graph
from verifier.jobs import KernelProfile
from verifier.profiling.diagnosing.task_facts import task_facts
from verifier.profiling.nsight import counters
from verifier.report import ObservedKernel

COUNTED = {
    counters.TENSOR_SHARE: 44.0, counters.PIPE["alu"]: 30.0, counters.ISSUE_SHARE: 42.0, counters.L2_SHARE: 67.0, counters.L1_SHARE: 54.0,
    counters.DRAM_SHARE: 60.0, counters.SM_SHARE: 40.0, counters.LOCAL_INSTRUCTIONS["ld"]: 0.0,
    **{counters.OCCUPANCY_LIMIT[name]: blocks for name, blocks in (("registers", 1), ("shared_mem", 1), ("warps", 4), ("blocks", 32))},
}  # fmt: skip


def counted(**more) -> Attempt:
    """Returns a program with one product on tensor cores: 250 blocks of 512 threads each, with room for one block per multiprocessor."""
    found = passed(ratio=6.0)
    known = {
        "name": "product", "own": True, "calls": 5, "total_us": 1500, "mean_us": 300, "share": 1.0, "grid": (250, 1, 1), "block": (512, 1, 1),
        "registers": 128, "shared_bytes": 232448, "metrics": COUNTED, "occupancy": 0.24, "occupancy_possible": 0.25,
        "stalls": {"barrier": 0.34, "wait": 0.19, "not_selected": 0.12, "selected": 0.11}, "resources": {"spill_load_bytes": 12},
    }  # fmt: skip
    found.profile = profile(kernels=[KernelProfile(**(known | more))], device_busy=0.6)
    return found


def test_a_kernel_says_its_busiest_pipes_bandwidths_resident_blocks_and_stalls():
    said = of_kernels.resources_text(counted(), H200)
    assert "resident blocks a multiprocessor: 1 (by registers and shared memory; block size 4), 1.9 waves" in said
    assert "DRAM 60 %, L2 67 %, L1 and shared memory 54 %; busiest pipe: tensor cores 44 % then integer and logic (alu) 30 %" in said
    assert "issue slots 42 %; stalls: barrier 34 %, wait 19 %; beside these, ready while another warp issues: 12 %" in said
    assert "wait: the fixed latency of their own last instruction" in said and "which the profiled calls never reached" in said


def test_what_a_profile_does_not_have_is_said_not_to_be_measured():
    assert "bandwidths, pipes and stalls: not measured" in of_kernels.resources_text(counted(metrics={}, stalls={}), H200)
    said = of_kernels.resources_text(counted(metrics={counters.DRAM_SHARE: 60.0}, stalls={}), H200)
    assert "L2 not measured" in said and "busiest pipe: not measured; issue slots not measured" in said and "stalls: not measured" in said


def test_a_kernel_of_a_library_is_described_where_it_was_counted():
    library = counted(own=False, name="at::native::index_add", share=0.3)
    assert "at::native::index_add: 300.0 us a launch" in of_kernels.resources_text(library, H200)
    library.profile.kernels[0].metrics = {}
    assert "index_add" not in of_kernels.resources_text(library, H200)


def test_a_grid_is_compared_with_the_blocks_that_can_be_resident():
    full, few = counted(), counted(grid=(40, 1, 1))
    for attempt in (full, few):
        attempt.profile.host.device_us = 480  # out of 500: the host is not the bottleneck
    assert diagnosed(situation(full), full).bottleneck != "occupancy", "128,000 threads are 1.9 waves of one block a multiprocessor"
    found = diagnosed(situation(few), few)
    assert found.bottleneck == "occupancy" and "40 blocks of 512 threads for 132 multiprocessors" in found.text


def test_products_on_tensor_cores_are_judged_by_their_rate():
    capture = Capture(task="t", mode="train", flops=24 * 10**9, bytes_min=10**6)  # 24 GFLOP in 0.5 ms: 80 % of the fp32 units, 41 % of 3xTF32
    tensor, plain = counted(), counted(metrics={**COUNTED, counters.TENSOR_SHARE: 0.0}, occupancy=None, occupancy_possible=None)
    for attempt in (tensor, plain):
        attempt.profile.host.device_us = 480
    said = of_diagnosis.diagnosis_text(diagnosed(situation(tensor, capture=capture), tensor))
    assert "41 % of the call on tensor cores, each fp32 product as three of TF32" in said and "fp32 units" not in said
    assert "80 % of the call on the fp32 units" in of_diagnosis.diagnosis_text(diagnosed(situation(plain, capture=capture), plain))


def test_the_other_splits_of_an_fp32_product_have_their_rates():
    said = device_text(H200)
    assert "as six of bf16 (three parts an operand) 130000" in said and "as three of bf16" in said and "260000" in said


def test_the_time_of_a_call_stands_once_in_a_request():
    found = counted()
    known = situation(found)
    assert "has nothing to do" in measured.measured_text(found, known)
    assert "has nothing to do" not in of_diagnosis.diagnosis_text(diagnosed(known, found))
    assert "has nothing to do" in diagnosed(known, found).says(), "the page and the trace say it with the diagnosis"


def test_times_of_another_recording_are_said_to_be_that():
    found = counted()
    found.report.kernels = [ObservedKernel(name="product", calls=1, ms=0.35, share=1.0, own=True)]
    assert "These times add up to 350 us: they come from a different recording" in measured.measured_text(found, situation(found))
    found.report.kernels[0].ms = 0.306
    assert "another recording" not in measured.measured_text(found, situation(found))


def test_a_recurrence_says_the_steps_that_its_floor_does_not_count():
    spec = {"shape": [10, 512, 128], "dtype": "float32"}
    lstm = {"name": "lstm", "op": "aten.lstm.input", "args": [{"ref": "x"}, [], [], True, 6, 0.0, True, True, True], "outputs": [spec]}
    graph = Graph.model_validate({"inputs": [{"name": "x", "kind": "user", "spec": spec, "index": 0}], "nodes": [lstm], "outputs": [{"ref": "lstm"}]})
    capture = Capture(task="t", mode="train", flops=10**9, bytes_min=42 * 10**6, graph=graph)
    assert task_facts(capture).dependent_steps == 6 * 512
    found = counted(stalls={})
    said = measured.measured_text(found, situation(found, capture=capture))
    assert "not dependent steps: 3,072 steps of a recurrence" in said and "3.07 ms together" in said and "0.0996 us a dependent step" in said
    waits = counted()
    said = measured.measured_text(waits, situation(waits, capture=capture))
    assert (
        "3,072 steps of a recurrence follow each other here. " in said
        and "3.07 ms together" not in said
        and "exchanges of the state included" in said
    )
    waits.profile.launches_per_iteration = 3072.0
    assert "3.07 ms together" in measured.measured_text(waits, situation(waits, capture=capture)), "a launch for each step says nothing of exchanges"
    assert "dependent" not in measured.measured_text(found, situation(found))
    capture.flops = 18 * 10**9
    found.profile.host.device_us = 480
    assert diagnosed(situation(found, capture=capture), found).bottleneck == "latency", "30 % of a rate is no bound where steps wait for each other"
    graph.nodes[0].args[-2] = False
    assert task_facts(capture).dependent_steps == 517, "layers of one direction overlap"


@pytest.mark.parametrize("bottleneck", ["memory", "compute", "latency", "occupancy"])
def test_host_work_has_a_method_wherever_there_are_gaps(bottleneck):
    names = allowed(Facts("cuda", bottleneck, program_us=800, launches=9, headroom=9.0, host_share=0.06, device_busy=0.94))
    assert {"lean-forward", "cuda-graph"} <= set(names) and len(names) <= SHOWN_METHODS
    one = allowed(Facts("cuda", bottleneck, program_us=800, launches=1, headroom=9.0, host_share=0.06, device_busy=0.94))
    assert "lean-forward" in one and "cuda-graph" not in one, "one launch is replayed already"


def test_an_order_goes_without_cautions_and_without_a_how_to_against_it():
    chosen = [by_name("split-k"), by_name("fuse-pointwise")]
    advice = Advice(Diagnosis(bottleneck="memory"), "optimise", "so", "split-k + fuse-pointwise", move="Add the parts in fixed order. No atomics.")
    said = method_text(chosen, advice.method, advice)
    assert "Not for" not in said and "The order: Add the parts" in said
    assert "Not for" in method_text(chosen, advice.method, None)
    how = digest.how_to_text(chosen, "cuda", None, advice.move)
    assert "- fuse-pointwise:" in how and "split-k" not in how


def test_fewer_registers_are_offered_only_where_they_alone_bound_the_blocks():
    facts = Facts("cuda", "occupancy", headroom=9.0, registers=128)
    assert by_name("shrink-live-ranges").refuses(replace(facts, registers_alone=True)) is None
    assert by_name("shrink-live-ranges").refuses(replace(facts, registers_alone=False)) is not None


def test_attention_is_offered_only_where_a_softmax_lies_between_products():
    def node(name, op, *reads):
        return {"name": name, "op": op, "args": [{"ref": read} for read in reads], "outputs": [{"shape": [64, 64], "dtype": "float32"}]}

    def facts(*nodes):
        graph = {"inputs": [{"name": "x", "kind": "user", "index": 0}], "nodes": list(nodes), "outputs": [{"ref": nodes[-1]["name"]}]}
        return task_facts(Capture(task="t", mode="train", graph=Graph.model_validate(graph)))

    product, soft = node("a", "aten.mm.default", "x", "x"), node("b", "aten._softmax.default", "a")
    assert facts(product, soft, node("c", "aten.bmm.default", "b", "x")).scores is True
    assert facts(product, soft, node("t", "aten.topk.default", "b"), node("c", "aten.bmm.default", "t", "x")).scores is False
    assert facts(node("b", "aten.exp.default", "x"), node("c", "aten.mm.default", "b", "x")).scores is False
    refused = Facts("cuda", "memory", headroom=9.0, products=True, reductions=True, scores=False)
    assert by_name("stream-through-softmax").refuses(refused) is not None


def test_products_on_tensor_cores_are_not_told_to_go_there():
    capture = Capture(task="t", mode="train", flops=24 * 10**9, bytes_min=10**6)
    for share, offered in ((44.0, False), (0.0, True)):
        found = counted(metrics={**COUNTED, counters.TENSOR_SHARE: share}, occupancy=None, occupancy_possible=None)
        found.profile.host.device_us = 480
        assert ("split-product" in diagnosed(situation(found, capture=capture), found).methods) == offered
    assert not by_name("persistent-recurrence").meets(["aten.hardtanh.default"]) and by_name("persistent-recurrence").meets(["aten.tanh.default"])


def test_the_busy_device_has_one_figure():
    found = counted(metrics={**COUNTED, counters.L2_SHARE: 30.0, counters.DRAM_SHARE: 25.0})
    found.profile.host.device_us = 480
    said = diagnosed(situation(found, capture=Capture(task="t", mode="train", flops=10**6, bytes_min=10**6)), found)
    assert said.bottleneck == "latency" and "device busy" not in [evidence.figure for evidence in said.evidence]


def test_a_class_is_bound_only_by_what_counters_saw_busy():
    capture = Capture(task="t", mode="train", flops=18 * 10**9, bytes_min=10**6)  # 31 % of 3xTF32 in 0.5 ms
    idle = {**COUNTED, counters.L2_SHARE: 30.0, counters.DRAM_SHARE: 25.0, counters.SM_SHARE: 44.0}
    quiet, busy = counted(metrics=idle), counted(metrics=idle | {counters.SM_SHARE: 64.0})
    for attempt in (quiet, busy):
        attempt.profile.host.device_us = 480
    found = diagnosed(situation(quiet, capture=capture), quiet)
    assert found.bottleneck == "latency" and "the multiprocessors' busiest unit is 44 % and L2 or DRAM 30 % busy" in found.text
    found = diagnosed(situation(busy, capture=capture), busy)
    assert found.bottleneck == "compute", "64 % is the nearest to a ceiling, and no bound"
    assert found.text.startswith("Nearest to its ceiling is arithmetic: the multiprocessors' busiest unit is 64 % busy while the device works")
    busy.profile.kernels[0].metrics |= {counters.SM_SHARE: 84.0}
    assert diagnosed(situation(busy, capture=capture), busy).text.startswith("Bound by arithmetic: the multiprocessors' busiest unit is 84 % busy")
    blind = counted(metrics={}, stalls={}, occupancy=None, resources={"tensor_instructions": 12})
    blind.profile.host.device_us = 480
    found = diagnosed(situation(blind, capture=capture), blind)
    assert found.text.startswith("Nearest to its ceiling is arithmetic") and "without counters it is not known what else is busy" in found.text
    assert "31 % of the call on tensor cores" in found.text, "its machine code shows that it uses them"
    assert "12 tensor-core instructions in its code" in of_kernels.resources_text(blind, H200)
    few = counted(metrics={**idle, counters.TENSOR_SHARE: 50.0})
    few.profile.host.device_us = 480
    few.profile.kernels[0].share = 0.41
    said = diagnosed(situation(few, capture=capture), few).text
    assert "the kernels with counters take 41 % of the time in kernels, too little to say what else is busy" in said


def test_a_product_without_counters_is_not_said_to_have_too_few_warps():
    capture = Capture(task="t", mode="train", flops=18 * 10**9, bytes_min=10**6)
    blind = counted(metrics={}, stalls={}, occupancy=None)
    assert "low-occupancy" not in [fault.name for fault in diagnosed(situation(blind, capture=capture), blind).faults]


def test_every_fault_is_told_where_its_cure_is_offered():
    causes = [Cause(name="barrier-stalls", lost_us=us, kernel=f"k{us}<(int)8>(float*)", says="Warps wait.") for us in (90, 50)]
    found = Diagnosis(bottleneck="latency", text="Latency bound.", evidence=[Evidence(figure="time a call", value=1000.0)], faults=causes)
    assert "- also, about 9 %, 5 % of the call, in k90<8>, k50<8>: Warps wait." in of_diagnosis.diagnosis_text(found)
    told = found.model_copy(update={"text": "Warps wait. Latency bound."})
    assert "also" not in of_diagnosis.diagnosis_text(told)


def test_spills_are_said_where_they_are_known():
    library = counted(own=False, name="gemm", share=0.4, metrics={counters.TENSOR_SHARE: 44.0}, resources={})
    said = of_kernels.resources_text(library, H200)
    assert "128 registers a thread" in said and "spill" not in said
    assert "no spills" in of_kernels.resources_text(counted(own=False, name="gemm", resources={}), H200), "the profiler saw no access to local memory"


def test_a_name_that_was_recorded_cut_loses_what_nothing_closes():
    cut = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast(at::TensorIteratorBase&, at::native::" + "x" * 60
    assert short_name(cut) == "at::native::elementwise_kernel"


def test_equal_groups_share_a_line_and_steps_say_what_their_groups_compute():
    steps = [{"id": f"g{n}", "title": "linear" if n % 2 else "softmax", "space": "library", "operators": []} for n in range(1, 31)]
    said = digest.plan_text({"summary": "s", "steps": steps})
    assert said.splitlines()[1] == "- g1, g3, g5, g7, g9, g11, g13 and 8 more (library): linear" and len(said.splitlines()) == 3
    known = compiled(group("g1", ["softmax"], 100), group("g2", ["relu", "add"], 200))
    assert "operators: g1 (softmax); g2 (relu, add); exp" in digest.step_text({"id": "s1", "operators": ["g1", "g2", "exp"]}, known)
    assert "operators: g1; g2" in digest.step_text({"id": "s1", "operators": ["g1", "g2"]})
    alike = compiled(*(group(f"g{n}", ["linear"], 10**6) for n in range(1, 31)))
    said = digest.floors_text(alike, situation(plan=alike))
    assert "- g1-g30, each: linear: " in said and said.count("linear") == 1


def test_what_tunes_a_settled_structure_waits_until_a_method_was_tried():
    first = counted()
    first.profile.host.device_us = 480
    found = Diagnosis(bottleneck="latency", methods=["block-size", "software-pipeline", "align-and-tail"])
    assert "software-pipeline" in (names := open_methods(situation(first), found)) and not {"block-size", "align-and-tail"} & set(names)
    second = passed(2, 6.1, base=first, rival=1.4)
    second = replace(second, edit=replace(second.edit, strategy="vectorise"), profile=first.profile)
    assert {"block-size", "software-pipeline", "align-and-tail"} <= set(open_methods(situation(first, second), found))


def test_a_step_may_name_a_run_of_groups():
    many = compiled(*(group(f"g{n}", ["linear"], 100) for n in range(1, 31)))
    assert [g.id for g in groups_of(many, ["g28-g30", "g1"])] == ["g1", "g28", "g29", "g30"]
    assert [g.id for g in groups_of(many, ["g2 to g4"])] == ["g2", "g3", "g4"] and not groups_of(many, ["g40-g50"])


def test_a_group_without_products_has_no_rate_of_tensor_cores():
    pointwise = group("g1", ["add"], 100 * 10**6, flops=10**9)
    pointwise.family = ""
    product = group("g2", ["matrix product"], 10**6, flops=10**9)
    found = compiled(pointwise, product)
    assert floor_of_group(found, pointwise).arithmetic == "fp32" and "tensor" not in floor_of_group(found, pointwise).says(brief=True)
    assert "on tensor cores" in floor_of_group(found, product).says(brief=True)
    assert floor_of_step(found, {"operators": ["g1", "g2"]}).flops == 10**9, "products alone"


def test_the_message_of_a_failure_stands_once_in_a_request():
    from agent_fakes import report

    from agents.memory import Memory
    from agents.roles.llm_coder import LlmCoder

    first = counted()
    first.edit = replace(first.edit, options=object())
    edit = replace(first.edit, source="y = 2\n", options=None, strategy="vectorise")
    crashed = Attempt(2, 1, edit, report(JOB, "crashed", message="out of memory at k"), base=first)
    known = situation(first, crashed)
    said = of_diagnosis.diagnosis_text(diagnosed(known, crashed))
    assert said == "Class: defect. The program crashed."
    told = diagnosed(known, crashed)
    told = told.model_copy(update={"text": f"{told.text} The buffer is too large."})
    assert of_diagnosis.diagnosis_text(told) == "Class: defect. The program crashed. The buffer is too large."
    memory = Memory.of(known)
    assert "out of memory" in memory.digest("coder") and "out of memory" not in memory.digest("coder", 2)
    assert LlmCoder._step(known, crashed).startswith("The groups of candidate 1, which the compiler wrote."), "not of the program shown"
    assert LlmCoder._step(known, first).startswith("The groups of the program below")
