"""Requests tell the answering model the limits, a single floor, where the time goes, the kernels, the bounds and what counts, without
contradictions."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
from agent_fakes import TASK, compared, report

from agents.events import MAX_PAYLOAD_BYTES
from agents.floor import floor_of, floor_of_group, floor_of_step, floor_of_task, groups_of
from agents.llm.messages import Reply
from agents.roles import digest, measured, of_diagnosis, of_kernels, of_reference
from agents.roles.compiled import Compiled
from agents.roles.edits import read_program
from agents.roles.llm_planner import read_plan
from agents.roles.names import short_name
from agents.roles.of_device import device_text
from agents.roles.prompts import part
from agents.roles.replies import DiagnosisReply, PlanReply, cut, parse
from agents.roles.situation import Attempt, Edit, Plan, Situation
from agents.settings import Settings
from agents.stopping import family, fraction_of_floor
from agents.strategies import CATALOGUE, Facts, by_name, combined, named, parts
from agents.strategies.combined import LONGEST
from compiler import DeviceFigures
from verifier.graph import Capture
from verifier.jobs import HostCalls, KernelProfile, Profile
from verifier.profiling.diagnosing.call_time import call_time
from verifier.report import BuildInfo, ObservedKernel, Trial
from verifier.task import Admission

H200 = DeviceFigures.h200()
JOB = SimpleNamespace(task_source=TASK, program_source="p", tier="quick", precision="fp32-strict", mode="train")


def passed(number=1, ratio=2.0, base=None, rival=None, **more) -> Attempt:
    found = report(JOB, "passed", ratio).model_copy(update=more)
    found.environment = found.environment.model_copy(update={"device": "cuda:0"})
    if rival is not None:
        found.timing.rival = compared("rival", 1.0, rival)
    return Attempt(number, base.number if base else None, Edit(f"x = {number}\n", f"program {number}", "a change", ()), found, base=base)


def group(name: str, operators: list[str], nbytes: int, flops: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        id=name, operators=operators, kinds=operators, bytes=nbytes, flops=flops, eager_bytes=nbytes, line=None, space="own kernel", floor_ms=9e9
    )


def compiled(*groups, precision="fp32-strict", figures=H200) -> Compiled:
    return Compiled(SimpleNamespace(groups=list(groups), graph=None, precision=precision, reason="", notes=[], floor_ms=9e9, left=[]), figures)


def situation(*attempts: Attempt, plan=None, capture=None, **more) -> Situation:
    found = plan or compiled()
    capture = capture or Capture(task="t", mode="train", flops=10**9, bytes_min=42 * 10**6)
    made = Plan({"steps": []}, (), found, floor_of_task(found, capture).ms, capture.bytes_min, capture.flops)
    return Situation(TASK, "t", Settings(device="cuda:0"), plan=made, capture=capture, attempts=list(attempts), **more)


# Limits


@pytest.mark.parametrize("length", [2_001, 5_900, 100_000])
def test_a_long_contract_is_cut_with_a_note_and_never_refused(length):
    step = {
        "id": "s1",
        "title": "t" * 500,
        "space": "own kernel",
        "operators": ["g1"] * 999,
        "strategies": ["vectorise"] * 20,
        "contract": "c" * length,
    }
    plan = read_plan(Reply(text=json.dumps({"summary": "s" * 5000, "steps": [dict(step, id=f"s{n}") for n in range(20)]})), CATALOGUE)
    assert len(plan.steps) == 12 and "8 further steps were left out" in plan.summary or "cut here" in plan.summary
    assert all("cut here" in s.contract for s in plan.steps) if length > 6000 else True
    assert len(json.dumps(plan.model_dump())) <= MAX_PAYLOAD_BYTES - 1024
    one = read_plan(Reply(text=json.dumps({"summary": "s", "steps": [step]})), CATALOGUE)
    assert one.steps[0].contract == cut("c" * length, 6000) and len(one.steps[0].contract) <= 6000


def test_limits_stand_in_the_request_and_are_those_that_hold():
    said = part("plan_reply")
    rooms = {"contract": 6000, "reason": 4000, "expected": 2000, "risk": 2000}
    for name, room in rooms.items():
        text = parse(
            Reply(text=json.dumps({"summary": "s", "steps": [{"id": "a", "title": "t", "space": "library", name: "x" * 9999}]})), PlanReply
        ).steps[0]
        assert len(getattr(text, name)) == room and f"{room:,}" in said
    found = parse(Reply(text=json.dumps({"bottleneck": "b" * 9000, "route": "stop", "change": "c" * 9000})), DiagnosisReply)
    assert (len(found.bottleneck), len(found.change)) == (2000, 6000)


# A single floor


def test_one_floor_for_plan_diagnosis_request_and_stopping():
    known = situation(passed(ratio=2.0, floor_ms=0.0125, floor_fraction=0.0083))
    floor = floor_of_task(known.plan.data, known.capture).ms
    assert known.plan.floor_ms == floor == pytest.approx(max(42e6 / 4200e6, 1e9 / 116.667e9), rel=1e-3)
    said = measured.measured_text(known.attempts[0], known)
    assert "Floor of the whole task: 10 us at least" in said and "150.0 times that" in said, said
    assert fraction_of_floor(known, known.attempts[0]) == pytest.approx(floor / 1.5)
    from agents.roles.rules_verifier import diagnosed

    assert diagnosed(known, known.attempts[0]).headroom == pytest.approx(1.5 / floor)


def test_a_floor_says_bytes_units_and_split_products():
    said = floor_of(42 * 10**6, 60 * 10**9, H200, "fp32-strict").says()
    assert said.startswith("514 us at least") and "42 MB move in 10 us" in said
    assert "1 ms on fp32 units" in said and "514 us on tensor cores, each fp32 product as three of TF32" in said
    assert "fp32 units" not in floor_of(1, 10**9, H200, "bf16").says() and "16 bits" in floor_of(1, 10**9, H200, "bf16").says()
    cpu = floor_of(10**9, 10**9, DeviceFigures.cpu(2), "fp32-strict")
    assert "tensor cores" not in cpu.says() and cpu.ms == pytest.approx(cpu.memory_ms)


def test_the_floor_of_a_step_is_that_of_its_groups_fused():
    found = compiled(group("g1", ["softmax"], 100), group("g2", ["relu"], 200), group("g12", ["add"], 400))
    assert [g.id for g in groups_of(found, ["g1: softmax", "relu"])] == ["g1", "g2"]
    assert floor_of_step(found, {"operators": ["g1", "g2"]}).nbytes == 300, "without a graph no more is known than their sum"
    assert floor_of_step(found, {"operators": ["all of it"]}) is None and floor_of_step(found, None) is None


def test_a_fused_step_moves_only_what_crosses_its_border():
    from compiler import make_plan
    from verifier.graph import Graph, GraphInput, Node
    from verifier.task import TensorSpec

    spec = TensorSpec(shape=(1024, 1024), dtype="float32")
    nodes = [
        Node(name="soft", op="aten._softmax.default", args=[{"ref": "x"}, -1, False], outputs=[spec]),
        Node(name="made", op="aten.mm.default", args=[{"ref": "soft"}, {"ref": "w"}], outputs=[spec]),
        Node(name="out", op="aten.relu.default", args=[{"ref": "made"}], outputs=[spec]),
    ]
    inputs = [GraphInput(name="x", kind="user", spec=spec, index=0), GraphInput(name="w", kind="parameter", target="w", spec=spec)]
    capture = Capture(task="t", mode="train", graph=Graph(inputs=inputs, nodes=nodes, outputs=[{"ref": "out"}], output_tree=0), flops=2 << 30)
    plan = make_plan(capture, "", H200)
    whole = Compiled(plan, H200)
    step = {"operators": [g.id for g in plan.groups]}
    assert floor_of_step(whole, step).nbytes == 3 * 4 << 20, "two inputs and the output"
    assert sum(g.bytes for g in plan.groups) > 3 * 4 << 20 or len(plan.groups) == 1
    assert "floor of this step, all of it fused" in digest.step_text({"id": "s1", **step}, whole)


def test_a_device_says_its_tensor_cores_and_what_code_is_built_for():
    said = device_text(H200)
    assert "TF32 350000 GFLOP/s, and so 116667 where an fp32 product is three of TF32" in said and "bf16 and fp16 780000" in said
    assert "-arch=sm_90" in said and "not `sm_90a`" in said and "fast-math" in said and "-O3" in said
    assert "nvcc" not in device_text(DeviceFigures.cpu(2)) and "tensor" not in device_text(DeviceFigures.cpu(2))


# Where a call's time goes


def profile(**more) -> Profile:
    host = HostCalls(device_us=306, kernel_us=306, begin_us=130, gap_us=60, after_us=40, waits=0)
    known = {"task": "t", "program": "p", "tool": "nsys", "iterations": 5, "wall_us_per_iteration": 536, "launches_per_iteration": 7, "host": host}
    return Profile(**(known | more))


def test_where_the_time_of_a_call_is():
    found = passed(ratio=3.0 / 0.52)
    spent = call_time(found.report, profile())
    assert (spent.call_us, spent.device_us, round(spent.host_share, 2)) == (pytest.approx(520), 306, 0.41)
    assert spent.before_us + spent.gaps_us + spent.after_us == pytest.approx(spent.host_us)
    said = spent.says()
    assert "Of a call of 520 us the device works 306 us and has nothing to do for 214 us (41 %)" in said
    assert "before its first work" in said and "in all between pieces" in said and "after its last" in said and "7 launches a call" in said
    found.profile = profile()
    assert "has nothing to do for 214 us" in measured.measured_text(found, situation(found))
    seen = passed(ratio=6.0, kernels=[ObservedKernel(name="k", calls=2, ms=0.1, share=1.0, own=True)])
    assert call_time(seen.report, None).host_us == pytest.approx(400), "without a timeline the kernels that the verdict saw"
    assert "of the reference" not in said and call_time(None, profile()).call_us == 536


def test_methods_for_the_host_wherever_its_share_is_large():
    from agents.roles.rules_verifier import diagnosed

    found = passed(ratio=3.0 / 0.52)
    found.profile = profile(
        kernels=[KernelProfile(name="k", own=True, calls=5, total_us=1500, mean_us=300, share=1.0, grid=(4096, 1, 1), block=(256, 1, 1))]
    )
    diagnosis = diagnosed(situation(found), found)
    assert (
        diagnosis.bottleneck == "launch"
        and diagnosis.host_share == pytest.approx(0.41, abs=0.01)
        and "has nothing to do for" in diagnosis.spent
        and "has nothing to do" not in diagnosis.text
    )
    for bottleneck in ("memory", "compute", "latency", "occupancy", "launch"):
        from agents.diagnosis import allowed

        names = allowed(Facts("cuda", bottleneck, program_us=4000, launches=1, headroom=3.0, host_share=0.3))
        assert {"lean-forward", "cuda-graph"} <= set(names), bottleneck
        busy = allowed(Facts("cuda", bottleneck, program_us=4000, launches=1, headroom=3.0, host_share=0.02, device_busy=0.98))
        assert "lean-forward" not in busy and "cuda-graph" not in busy


# Kernels


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("(anonymous namespace)::fused_moe(float const*, int)", "fused_moe"),
        ("void (anonymous namespace)::k<4, (bool)1>(float*)", "k<4, (bool)1>"),
        ("void <unnamed>::attend<float>(Params)", "attend<float>"),
        ("_ZN12_GLOBAL__N_1kEv", "_ZN12_GLOBAL__N_1kEv"),
        ("void at::native::(anonymous namespace)::cat(at::Tensor)", "at::native::cat"),
        ("plain", "plain"),
        ("void ns::k<int (*)(float)>(int)", "ns::k<int (*)(float)>"),
        ("triton_poi_fused_0", "triton_poi_fused_0"),
    ],
)
def test_names_of_kernels(name, short):
    assert short_name(name) == short


def test_times_of_kernels_say_of_what_and_how_many_launches():
    kernels = [
        ObservedKernel(name="(anonymous namespace)::k(int)", calls=2, ms=0.061, share=0.51, own=True),
        ObservedKernel(name="gemm", calls=1, ms=0.06, share=0.49, own=False),
    ]
    said = measured.measured_text(passed(kernels=kernels), situation())
    assert "- k (own): 61.0 us a call in 2 launches, 30.5 us each, 51 % of the device's time" in said and "one launch" in said


def test_registers_spills_shared_memory_and_occupancy_without_a_profile():
    row = {"kernel": "ns::k", "registers": 168, "spill_store_bytes": 8, "shared_bytes": 49152, "occupancy": 0.25, "occupancy_limit": "registers"}
    found = passed(build=BuildInfo(seconds=1, cached=False, resources=[row]))
    said = of_kernels.resources_text(found)
    assert "- k: 168 registers a thread; spills or local arrays: 8 bytes stored by a thread; 49152 bytes of shared memory a block; occupancy" in said


# What counts


def test_the_error_is_a_number_and_says_what_it_is_relative_to():
    norm = "max |a-b| / (|b| + rms(b))"
    trials = [Trial(name="negative", seed=1, ok=True, error=1e-6, bound=2e-6, norm=norm), Trial(name="tiny", seed=1, ok=True, error=1e-7, bound=2e-6)]
    assert f"Error: at most 1e-06 of a bound of 2e-06 in 'negative' (50 % of it), as {norm}." in measured.measured_text(
        passed(trials=trials), situation()
    )


@pytest.mark.parametrize("precision", ["fp32-strict", "tf32", "bf16", "fp16"])
def test_the_stated_bound_is_the_verifiers(precision):
    import torch

    from verifier.correctness.bounds import ULPS, W_FEW, K, W, epsilon

    said = part(f"precision_{precision.replace('-', '_')}")
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    assert f"{K[precision]:g} times PyTorch's own" in said and f"{W:g} times that of plain arithmetic ({W_FEW:g} times" in said
    numbers = [float(n) for n in re.findall(r"and (\d\.\d+(?:e-\d+)?)", said)]
    assert numbers and numbers[-1] == pytest.approx(ULPS * epsilon(dtype), rel=0.01)
    rules = part("honesty")
    assert "|a - b| / (|b| + rms(b))" in rules and "Python" in rules and "decided differently" in rules and "four times as many" in rules


def test_a_task_says_its_mode_and_that_no_gradients_are_asked_for():
    said = digest.task_text(situation())
    assert "Mode: train" in said and "no gradients are requested" in said


def test_eager_has_one_figure_with_its_noise():
    known = situation(admission=Admission(task="t", ok=True, eager_ms=1.86))
    assert "about 1.86 ms a call" in measured.eager_text(known) and "an estimate" in measured.eager_text(known)
    assert digest.task_text(known).count("Eager") == 1 and "Eager" not in digest.floors_text(known.plan.data, known)
    first, second = passed(1), passed(2)
    second.report.timing.comparisons[0].baseline_ms = 3.06
    known.attempts = [first, second]
    assert "(median over 2 measurements, from 3 ms to 3.06 ms" in measured.eager_text(known) and "1.86" not in digest.task_text(known)


def test_why_an_attempt_lost_with_what_it_changed():
    first = passed(1)
    second = passed(2, base=first, rival=0.9)
    second.edit = Edit("x = 2\n", "wider", "wider loads", (), strategy="vectorise")
    said = measured.lost_text(first, situation(first, second))
    assert "candidate 2 (vectorise): 0.900x [0.882, 0.918] of candidate 1, timed in alternation." in said and "It was to: wider loads" in said
    assert "-x = 1" in said and "+x = 2" in said and measured.lost_text(second, situation(first, second)) == ""


# Strategies


def test_what_was_wanted_has_a_name_and_combinations_are_one_name():
    for name in ("fuse-block", "cooperative-kernel", "dependent-launch", "grouped-product"):
        assert by_name(name) is not None
    assert combined(["vectorise", "nothing", "row-cache", "vectorise"]) == "vectorise + row-cache"
    assert named("`fuse-block`, Vectorise and row-cache.") == "fuse-block + vectorise + row-cache" and named("none") == ""
    assert len(combined(s.name for s in CATALOGUE)) <= LONGEST and parts("a + b") == ("a", "b")
    assert family("fuse-pointwise + fuse-block") == "fusion" and family("fuse-block + vectorise") == "fuse-block + vectorise"
    text = "TITLE: t\nSTRATEGY: fuse-block + vectorise\n\n```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n```"
    assert read_program(Reply(text=text), TASK, None).strategy == "fuse-block + vectorise"


@pytest.mark.parametrize(
    ("name", "contract", "space"),
    [
        ("cuda-graph", "launches on the caller's stream, no CUDA graph", "own kernel"),
        ("split-k", "results repeat bit by bit", "own kernel"),
        ("split-product", "on fp32 units only", "own kernel"),
        ("kernel-fission", "one kernel for the whole block", "own kernel"),
        ("leave-to-library", "", "own kernel"),
        ("tile-reuse", "", "library"),
    ],
)
def test_a_how_to_that_contradicts_the_contract_is_left_out(name, contract, space):
    step = {"id": "s1", "title": "t", "space": space, "contract": contract}
    assert name not in digest.how_to_text([by_name(name), by_name("vectorise")], "cuda", step)
    assert f"- {name}: " in digest.how_to_text([by_name(name)], "cuda", {"id": "s1", "contract": "fp32", "space": "any"})


def test_not_for_says_numbers():
    vague = re.compile(r"\b(?:long|large|small|short|few|many) (?:calls|sequences|batches|rows|columns|products|sums|dense products)\b")
    for strategy in CATALOGUE:
        found = vague.search(strategy.forbidden)
        assert found is None or re.search(r"\d", strategy.forbidden), f"{strategy.name}: {found[0]}"


def test_a_floor_of_a_group_is_by_the_same_rule():
    one = group("g1", ["softmax"], 42 * 10**6)
    assert floor_of_group(compiled(one), one).ms == pytest.approx(0.01)


def test_flags_that_are_stated_are_those_of_the_build():
    from verifier.build.raw import CPP_FLAGS, CUDA_FLAGS

    said = part("language_cpp")
    assert all(flag in said for flag in CPP_FLAGS) and "no `-ffast-math`" in said and " ".join(CUDA_FLAGS[:2]) in device_text(H200)


def test_strategies_for_operators_that_the_task_does_not_have_are_not_offered():
    facts = Facts("cuda", "memory", headroom=4.0)
    offered = {s.name for s in digest.catalogue_for(facts, "cuda", ["aten.mm.default", "aten._softmax.default"])}
    assert {"one-pass-softmax", "stream-through-softmax", "fuse-block"} <= offered
    assert not {"own-pool", "own-depthwise", "channels-last", "own-scan", "own-order"} & offered
    assert {"own-pool", "own-scan"} <= {s.name for s in digest.catalogue_for(facts, "cuda")}, "where the operators are not known all are"


def test_a_diagnosis_repeats_no_figure_that_was_measured():
    from agents.roles.rules_verifier import diagnosed

    found = passed()
    known = situation(found)
    said = of_diagnosis.diagnosis_text(diagnosed(known, found))
    assert "eager" not in said and "time a call" not in said and "Class: " in said


def test_a_floor_that_is_beaten_is_none_and_ends_no_search():
    from agents.stopping import enough

    run = type("Run", (), {"settings": Settings(device="cuda:0")})
    known = situation(passed(ratio=3.0 / 0.0075))
    assert "This program is below it" in measured.measured_text(known.attempts[0], known) and enough(run, known) is None
    near = situation(passed(ratio=3.0 / 0.0101))
    assert "99 % of the floor" in enough(run, near)


def test_the_coder_is_told_what_holds_back_the_program_that_it_changes():
    from agents.roles.rules_verifier import by_rules

    best, worse = passed(1, ratio=2.0), passed(2, ratio=0.5)
    advice = by_rules(situation(best, worse), worse)
    assert advice.route in ("optimise", "stop")
    if advice.route == "optimise":
        assert advice.base.headroom == pytest.approx(1.5 / 0.01) and advice.diagnosis.headroom == pytest.approx(6.0 / 0.01)
    assert by_rules(situation(best), best).base is None


def test_a_reference_whose_host_sets_the_pace_allows_its_methods_to_the_planner():
    known = situation(reference=profile(wall_us_per_iteration=500))
    names = {s.name for s in digest.catalogue_for(of_reference.facts_of_reference(known.plan.data, known), "cuda")}
    assert {"cuda-graph", "lean-forward"} <= names
    assert "before its first work" in of_reference.profile_text(known.reference)
