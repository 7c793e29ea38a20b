"""The judge's conclusions from a runner's evidence: the class, the findings, and the few cases in which it ends the evaluation."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from verifier.build.store import Artefacts
from verifier.correctness.calling import Subject
from verifier.integrity.blocked import ComputeBlocked, Watch, watch
from verifier.integrity.evidence import Evidence, Swallowed
from verifier.integrity.excess import excess
from verifier.integrity.judging import Observed, ask, at_most, judge_evidence
from verifier.integrity.sampling.observing import Sampled
from verifier.judge.session import Values
from verifier.report import Comparison, Interval, ObservedKernel, Timing, TorchCompute

NOTHING = Artefacts([], b"", 0.0)
SOURCE = 'K = r"""\n__global__ void mine(float* p) {}\n__global__ void other(float* p) {}\n"""\n'


def kernel(name: str, ms: float, via: str = "", own: bool = False) -> ObservedKernel:
    return ObservedKernel(name=name, calls=1, ms=ms, share=0.0, own=own, via=via)


def judged(*kernels: ObservedKernel, source: str = SOURCE, program_ms: float = 1.0, kind: str = "cuda", seen: Observed | None = None, **evidence):
    found = Evidence(kernels=list(kernels), busy_ms=sum(k.ms for k in kernels), wall_ms=1.0, **evidence)
    return judge_evidence(found, source, NOTHING, kind, program_ms, seen)


def rules(result) -> dict[str, str]:
    return {finding.rule: finding.severity for finding in result.findings}


def test_the_class_is_by_the_share_of_own_kernels():
    assert judged(kernel("mine(float*)", 0.6), kernel("at::native::k", 0.3, "aten::mul")).program_class == "custom"
    assert judged(kernel("mine(float*)", 0.2), kernel("at::native::k", 0.6, "aten::mul")).program_class == "mixed"
    assert judged(kernel("mine(float*)", 0.01), kernel("gemm", 0.9, "aten::mm")).program_class == "orchestration"
    assert judged(kernel("Memcpy DtoD", 0.9)).program_class == "orchestration"
    assert judged().own_share is None and "CUPTI" in judged().reason


def test_time_beside_a_librarys_kernel_is_the_librarys():
    """An own kernel may spin until the library's result is there. Copies beside it are no reason to wait."""
    spinning = kernel("mine(float*)", 0.55), kernel("gemm", 0.5)
    assert judged(*spinning).program_class == "custom"
    result = judged(*spinning, beside=[(0, 1, 0.5)])
    assert result.program_class == "orchestration" and result.own_share == pytest.approx(0.05 / 0.55)
    assert next(k.ms for k in result.kernels if k.own) == 0.55
    assert judged(kernel("mine(float*)", 0.55), kernel("Memcpy DtoD", 0.5), beside=[(1, 0, 0.5)]).program_class == "custom"
    assert judged(kernel("mine(float*)", 0.5), kernel("other(float*)", 0.5), beside=[(0, 1, 0.5)]).own_share == 1
    assert judged(*spinning, beside=[(0, 7, 0.5), (-1, 1, 0.5), (0, 1, -9.0)]).program_class == "custom"


def test_a_kernel_that_was_only_launched_makes_nothing_mixed():
    """As recorded on an H200: next to the reference under torch.compile, one of the program's own kernels, over 64 elements, takes 19 % of a 6 us
    call."""
    compiled = kernel("triton_red_fused__softmax_exp_mul_prepare_softmax_online_sub_0", 0.0049)
    needless = kernel("mine(float*)", 0.00115)
    result = judged(compiled, needless, program_ms=0.02, compiled=1)
    assert result.program_class == "orchestration" and result.own_share == 0
    assert "mine(float*) 1.1 us" in next(f.message for f in result.findings if f.rule == "bare-launch")
    assert any(f.rule == "library-share" and "triton_" in f.message for f in result.findings)
    # A longer kernel counts as work, many launches of a short one do not, and the program's own work still counts next to them.
    assert judged(compiled, kernel("mine(float*)", 0.003), program_ms=0.02).program_class == "mixed"
    many = kernel("mine(float*)", 0.0046).model_copy(update={"calls": 4.0})
    assert judged(compiled, many, program_ms=0.02).program_class == "orchestration"
    assert judged(compiled, needless, kernel("other(float*)", 0.003), program_ms=0.02).program_class == "mixed"
    # Enough of them to take half of the time are still not work; nor is one of them work if the compiler's own kernels are just as short.
    many = kernel("mine(float*)", 0.0062).model_copy(update={"calls": 6.0})
    assert judged(kernel("triton_poi_fused_0", 0.006), many, program_ms=0.02, compiled=1).program_class == "orchestration"
    assert judged(kernel("triton_poi_fused_0", 0.0019), needless, program_ms=0.02, compiled=1).program_class == "orchestration"
    assert judged(kernel("mine(float*)", 0.001).model_copy(update={"calls": 0.0}), compiled, program_ms=0.02).program_class  # forged, not a crash
    # Next to a library's products, a fused kernel of two microseconds is work, as in a recurrent cell.
    assert judged(kernel("gemm", 0.005, "aten::mm"), kernel("other(float*)", 0.0019), program_ms=0.02).program_class == "mixed"


def test_a_call_of_nothing_but_small_kernels_is_classed_by_their_shares():
    small = [kernel("mine(float*)", 0.0012), kernel("Memcpy DtoD", 0.0015)]
    assert judged(*small, program_ms=0.02).program_class == "mixed"
    assert judged(small[0], kernel("other(float*)", 0.0013), kernel("gemm", 0.0024, "aten::mm"), program_ms=0.02).program_class == "custom"


def test_what_torch_launches_is_not_own_whatever_its_name():
    result = judged(kernel("mine(float*)", 0.9, "aten::mm"), kernel("mine(float*)", 0.05))
    assert result.program_class == "orchestration" and [k.own for k in result.kernels] == [False, True]


def test_kernels_that_never_run_are_named():
    assert rules(judged(kernel("gemm", 0.9, "aten::mm")))["never-launched"] == "downgrade"
    assert rules(judged(kernel("mine(float*)", 0.9)))["never-launched"] == "note"


def test_observed_calls_that_are_not_the_timed_ones_count_for_nothing():
    result = judged(kernel("mine(float*)", 0.9), program_ms=0.1)
    assert result.program_class == "orchestration" and "two-faced" in rules(result)


def test_device_work_explains_the_timed_call():
    mine = kernel("mine(float*)", 0.9)
    assert judged(mine, program_ms=0.85).program_class == "custom"  # a tenth more, plus the launch overhead
    assert "two-faced" in rules(judged(mine, program_ms=0.75))
    assert judged(mine, program_ms=1.2, recorded=3, host_ms=0.0).program_class == "custom"  # the exchange with the judge around the call
    assert judged(mine, program_ms=3.0, recorded=3, host_ms=2.0).program_class == "custom"
    assert "two-faced" in rules(judged(mine, program_ms=3.0, recorded=3, host_ms=0.1))
    assert "two-faced" in rules(judged(mine, seen=Observed(unlike="made again it gives other outputs")))


def test_own_work_that_changes_nothing_does_not_count():
    kernels = kernel("mine(float*)", 0.6), kernel("other(float*)", 0.2), kernel("gemm", 0.2, "aten::mm")
    found = judged(*kernels, seen=Observed(needless=["mine(float*)"]))
    assert found.own_share == pytest.approx(0.2) and found.program_class == "mixed"
    assert "mine(float*) (60% of the time)" in next(f.message for f in found.findings if f.rule == "does-nothing")
    assert {k.name: k.own for k in found.kernels} == {"mine(float*)": False, "other(float*)": True, "gemm": False}
    assert rules(judged(*kernels, seen=Observed(unskipped="no such code")))["not-skipped"] == "note"


def test_on_the_cpu_the_class_is_by_what_the_judge_saw():
    sampled = Sampled({(0, "_Z4rowsPf"): 0.3, (0, "tail"): 0.3}, {"libtorch_cpu.so": 0.4}, 300, looked=True)
    told = kernel("rows", 0.9, own=True).model_copy(update={"calls": 2.0}), kernel("aten::mm", 0.1)
    found = judged(*told, kind="cpu", program_ms=10.0, seen=Observed(sampled=sampled))
    assert found.own_share == 0.6 and found.program_class == "custom"
    assert {k.name: (k.own, round(k.share, 2), k.calls) for k in found.kernels} == {
        "rows": (True, 0.3, 2.0),
        "tail": (True, 0.3, 1.0),
        "aten::mm": (False, 0.1, 1.0),
        "libtorch_cpu.so": (False, 0.3, 1.0),
    }
    assert all(not k.via for k in found.kernels) and sum(k.ms for k in found.kernels) == pytest.approx(10.0)
    found = judged(*told, kind="cpu", program_ms=10.0, seen=Observed(sampled=sampled, needless=["0:_Z4rowsPf"]))
    assert found.own_share == pytest.approx(0.3) and found.program_class == "mixed"
    slower = Observed(replay_ms=20.0, sampled=sampled)
    assert judged(*told, kind="cpu", program_ms=10.0, seen=slower).program_class == "orchestration"
    found = judged(*told, kind="cpu", program_ms=10.0, seen=Observed(sampled=Sampled(reason="ptrace is not permitted")))
    assert found.own_share == 0.0 and "ptrace" in next(f.message for f in found.findings if f.rule == "seen-inside")  # no library exports it
    found = judged(*told, kind="cpu", program_ms=10.0, seen=Observed(sampled=Sampled(reason="nobody was seen at work", looked=True)))
    assert found.own_share is None and found.reason == "nobody was seen at work"


def seen_timed(own: float, moments: int, busy: bool = False):
    timed = Sampled({(0, "rows"): own}, {"libtorch_cpu.so": 1 - own}, moments, looked=True)
    sampled = Sampled({(0, "rows"): 0.6}, {"libtorch_cpu.so": 0.4}, 300, looked=True, timed=timed)
    return judged(kernel("rows", 0.6, own=True), kind="cpu", program_ms=10.0, seen=Observed(sampled=sampled, busy=busy))


@pytest.mark.parametrize(
    ("own", "moments", "of_the_class"),
    [
        (0.55, 40, "custom"),
        (0.45, 16, "custom"),  # explained by chance
        (0.0, 16, "orchestration"),  # a library was working during the timed calls
        (0.1, 40, "orchestration"),
        (0.0, 6, "custom"),  # hardly any samples were taken
    ],
)
def test_own_code_must_have_been_at_work_in_the_timed_calls_too(own, moments, of_the_class):
    found = seen_timed(own, moments)
    assert found.program_class == of_the_class and ("two-faced" in rules(found)) is (of_the_class != "custom")
    assert ("timed-unseen" in rules(found)) is (moments < 8) and not found.status


def test_a_class_that_a_busy_host_did_not_let_the_judge_see_is_none():
    assert seen_timed(0.7, 3, busy=True).status == ""  # the program's own code was observed running
    found = seen_timed(0.2, 3, busy=True)
    assert found.status == "inconclusive" and found.message.startswith("this host is busy")
    assert seen_timed(0.6, 8, busy=True).status == ""


def test_how_large_a_share_may_be_that_was_hardly_seen():
    assert at_most(0, 16) == pytest.approx(1 - 0.01 ** (1 / 16), abs=1e-6)
    assert at_most(0, 0) == at_most(16, 16) == 1.0
    assert 0.5 < at_most(8, 16) < at_most(8.5, 16) < at_most(4, 8) < 1.0


def test_falling_back_is_seen():
    needs = [TorchCompute(name="aten.mm", calls=1, line=7)]
    result = judged(kernel("gemm", 0.9, "aten::mm"), needs=needs, swallowed=[Swallowed(error="RuntimeError", line=5)])
    assert rules(result)["falls-back"] == "downgrade"
    assert [finding.line for finding in result.findings if finding.rule == "falls-back"] == [5]
    assert "aten.mm at line 7 (100%)" in next(f.message for f in result.findings if f.rule == "torch-compute")
    assert "falls-back" in rules(judged(kernel("mine(float*)", 0.9), needs=needs, blocked="returned"))


def test_work_that_forward_does_not_answer_for_ends_it():
    assert judged(kernel("mine(float*)", 0.9), unjoined_ms=0.5).status == "wrong_result"
    assert judged(kernel("mine(float*)", 0.9), late_ms=0.5).status == "wrong_result"
    assert judged(kernel("mine(float*)", 0.9), changed_late=True).status == "wrong_result"
    assert judged(kernel("mine(float*)", 0.9), idle_cpu=1.4).status == "inconclusive"
    assert judged(kernel("mine(float*)", 0.9), settings={"cudnn.benchmark": "True"}, threads_left=1).status == ""


def test_on_the_cpu_only_what_the_builder_made_is_own():
    assert judged(kernel("row_softmax", 0.9, own=True), kind="cpu").own_share == 0.0  # no library exports it


def test_calls_are_observed_while_nobody_else_uses_the_device():
    """Next to other judges' work on the same GPU, honest programs seemed to do twice the work of a timed call, and lost their class."""
    held = []

    class Runner:
        gate, device = SimpleNamespace(), SimpleNamespace(sync=lambda: None)

        arenas = {"in": SimpleNamespace(bytes=torch.zeros(8, dtype=torch.uint8))}

        def arena(self, name, nbytes):
            return self.arenas[name]

        def ask(self, kind, message, limit):
            assert kind == "observe" and held == ["alone"]
            return SimpleNamespace(message={"evidence": {"busy_ms": 1.0}})

    @contextlib.contextmanager
    def alone():
        held.append("alone")
        yield
        held.clear()

    runner = Runner()
    runner.gate.alone = alone
    trials = SimpleNamespace(first_inputs=Values({"l": []}, []), reference=SimpleNamespace(backward=None), limits=SimpleNamespace(call=1.0))
    assert ask(trials, Subject(runner)).busy_ms == 1.0 and not held


def test_torch_compute_is_watched_then_blocked():
    weight = torch.rand(8, 8)
    found = watch(lambda: (torch.empty(8, 8).copy_(weight).t().reshape(64) @ weight.view(64)).item())
    assert [need["name"] for need in found["needs"]] == ["aten.dot"] and found["blocked"] == "raised"

    def falls_back() -> None:
        try:
            torch.mm(weight, weight)
        except ComputeBlocked:
            pass

    assert watch(falls_back)["blocked"] == "returned"
    assert watch(lambda: weight.clone().view(-1)) == {"needs": [], "swallowed": [], "blocked": ""}
    with Watch(block=False) as seen:
        torch.nn.functional.linear(weight, weight)
    assert len(seen.seen) >= 1


def timing(program_ms: float, *ratios: float) -> Timing:
    names = ["eager", "compile", "cuda-graph"]
    comparisons = [
        Comparison(
            baseline=names[at],
            speedup=Interval(ratio=ratio, low=ratio, high=ratio),
            program_ms=program_ms,
            baseline_ms=program_ms * ratio,
            blocks=1,
            program_samples_ms=[],
            baseline_samples_ms=[],
        )
        for at, ratio in enumerate(ratios)
    ]
    return Timing(program_ms=program_ms, bounded=False, clock_agrees=True, round_trip_ms=0.0, comparisons=comparisons)


def test_times_that_are_too_good():
    assert excess(timing(1.0, 3.0), 0.5) == []
    assert [rule for rule, _ in excess(timing(0.4, 3.0), 0.5)] == ["below-floor"]
    assert [rule for rule, _ in excess(timing(1.0, 12.0, 2.5), None)] == ["fast", "beyond-baselines"]
    assert excess(timing(1.0, 12.0, 1.5), None)[0][1] == "12.0x eager"
