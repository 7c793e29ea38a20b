"""Moves follow from measurements, change one thing each, and end when there is nothing left to try."""

from pathlib import Path

import pytest

from compiler import DeviceFigures, Options, moves, print_program
from compiler.kernel.naming import kernel_base
from verifier.jobs import Profile
from verifier.report import Comparison, Environment, Interval, ObservedKernel, Protection, Report, Timing

EXAMPLES = Path(__file__).parents[3] / "examples"


def report(program_ms: float, eager_ms: float, kernels: list[ObservedKernel] = (), status: str = "passed") -> Report:
    ratio = eager_ms / program_ms
    comparison = Comparison(
        baseline="eager", speedup=Interval(ratio=ratio, low=ratio * 0.97, high=ratio * 1.03), program_ms=program_ms, baseline_ms=eager_ms,
        blocks=1, program_samples_ms=[[program_ms]], baseline_samples_ms=[[eager_ms]],
    )  # fmt: skip
    timing = Timing(program_ms=program_ms, bounded=False, clock_agrees=True, round_trip_ms=0.01, comparisons=[comparison])
    return Report(
        task="t", program="p", tier="quick", precision="fp32-strict", mode="train", status=status, kernels=list(kernels),
        environment=Environment(device="cpu", device_name="CPU", device_model="cpu", torch="2", python="3", compiler="g++"),
        protection=Protection(sandbox="process", layers=[]), timing=timing if status == "passed" else None, faster=status == "passed" and ratio > 1.1,
    )  # fmt: skip


@pytest.fixture
def plan_of(compiled):
    return lambda name, figures: compiled((EXAMPLES / f"{name}.py").read_text(), figures=figures)


def test_each_move_gives_another_program(plan_of):
    found = plan_of("softmax", DeviceFigures.cpu(2))
    offered = moves(found.plan, Options(), report(9.0, 10.0), None)
    assert {"non-temporal-stores"} <= {move.strategy for move in offered}
    texts = [print_program(found.plan, found.source, move.options) for move in offered]
    assert len({found.text, *texts}) == len(texts) + 1
    assert all(move.expectation and move.why and move.expected_speedup >= 1 for move in offered)


def test_nothing_is_left_at_the_floor(plan_of):
    found = plan_of("softmax", DeviceFigures.cpu(2))
    assert moves(found.plan, Options(), report(found.plan.floor_ms * 1.05, 10.0), None) == []


def test_nothing_without_a_measurement(plan_of):
    found = plan_of("softmax", DeviceFigures.cpu(2))
    assert moves(found.plan, Options(), None, None) == []
    assert moves(found.plan, Options(), report(9.0, 10.0, status="crashed"), None) == []


@pytest.mark.slow
def test_launch_bound_models_get_a_graph_first(plan_of):
    found = plan_of("lstm_cell_loop", DeviceFigures.h200())
    seen = Profile(task="t", program="p", tool="nsys", iterations=5, wall_us_per_iteration=900, device_busy=0.2, launches_per_iteration=33)
    first = moves(found.plan, Options(), report(0.9, 1.5), seen)[0]
    assert first.strategy == "cuda-graph" and first.options.on("cuda-graph") and first.expected_speedup > 2
    assert all(move.strategy != "block-size" for move in moves(found.plan, Options(), report(0.9, 1.5), seen)), (
        "the kernels are not what it waits for"
    )
    busy = seen.model_copy(update={"device_busy": 0.98})
    assert all(move.strategy != "cuda-graph" for move in moves(found.plan, Options(), report(0.9, 1.5), busy))
    assert all(move.strategy != "cuda-graph" for move in moves(found.plan, first.options, report(0.4, 1.5), seen))


def test_a_small_share_is_left_alone(plan_of):
    found = plan_of("residual_mlp", DeviceFigures.cpu(2))
    kernels = [ObservedKernel(name=kernel_base(group.kinds), calls=1, ms=0.01, share=0.001, own=True) for group in found.plan.own]
    offered = moves(found.plan, Options(), report(10.0, 12.0, kernels), None)
    assert all(not move.group for move in offered)


def test_a_kernel_that_saves_nothing_is_given_back(plan_of):
    found = plan_of("softmax", DeviceFigures.cpu(2))
    offered = moves(found.plan, Options(), report(10.0, 8.0), None)
    assert any(move.strategy == "leave-to-library" and move.options.on("leave-to-library", move.group) for move in offered)


def test_sums_at_an_index_are_given_back_alone(compiled, task):
    source = task("return torch.zeros_like(z).index_add(0, i, x * y)", "torch.randn(300, 32), torch.randn(300, 32), torch.randn(20, 32), "
                  "torch.randint(0, 20, (300,))", arguments="x, y, z, i")  # fmt: skip
    found = compiled(source, figures=DeviceFigures.h200())
    (move,) = [move for move in moves(found.plan, Options(), report(0.9, 1.5), None) if "adds up" in move.expectation]
    text = print_program(found.plan, found.source, move.options)
    assert "join_sum" in found.text and "join_sum" not in text and "index_add_(" in text and "kernels." in text
    assert not [again for again in moves(found.plan, move.options, report(0.9, 1.5), None) if "adds up" in again.expectation]
