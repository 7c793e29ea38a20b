"""The expected time of a group, derived from its floor, its kind and, on a GPU, what kernels of that kind have achieved."""

from types import SimpleNamespace

import pytest

from compiler.figures import DeviceFigures
from compiler.options import Options
from compiler.planning.cost import REACHED, expected_ms, groups_of_kernels
from compiler.planning.plan import Group
from verifier.report import ObservedKernel

H200 = DeviceFigures.h200()


def group(kinds: list[str], floor_ms: float, space: str = "own kernel") -> Group:
    return Group(id="g1", title=", ".join(kinds), operators=["x"], kinds=kinds, space=space, reason="", floor_ms=floor_ms)


@pytest.mark.parametrize(
    ("kinds", "precision", "reached"),
    [
        (["sigmoid"], "fp32-strict", 0.95),
        (["convolution", "ReLU"], "fp32-strict", 0.43),
        (["convolution", "ReLU"], "bf16", 0.24),
        (["linear", "group norm"], "fp32-strict", 0.62),
        (["linear", "group norm"], "fp16", 0.62),
    ],
)
def test_own_kernels_are_expected_to_reach_what_their_kind_did(kinds, precision, reached):
    assert expected_ms(group(kinds, 2.0), H200, precision) == pytest.approx(2.0 / reached)


def test_others_have_a_rule_and_nothing_takes_less_than_its_launch():
    assert expected_ms(group(["convolution"], 2.0, "library"), H200) == pytest.approx(2.0 / REACHED["library"])
    assert expected_ms(group(["convolution"], 2.0), DeviceFigures.cpu(2)) == pytest.approx(2.0 / REACHED["own kernel"])
    assert expected_ms(group(["sigmoid"], 1e-6), H200) == pytest.approx(H200.launch_us / 1e3)


def test_a_kernel_has_the_groups_that_it_computes_and_a_group_its_longest_kernel():
    product, pool = group(["linear", "relu"], 0.1), group(["max pool"], 0.2)
    plan = SimpleNamespace(own=[product, pool.model_copy(update={"id": "g2"})])
    seen = [("linear_relu_kernel", 0.3), ("linear_relu_finish", 0.01), ("max_pool_kernel", 0.4), ("gemm", 1.0)]
    report = SimpleNamespace(kernels=[ObservedKernel(name=name, calls=1, ms=ms, share=0.1, own=name != "gemm") for name, ms in seen])
    found = groups_of_kernels(plan, Options(), report, None, "")
    assert {name: [one.id for one in groups] for name, groups in found.items()} == {"linear_relu_kernel": ["g1"], "max_pool_kernel": ["g2"]}
