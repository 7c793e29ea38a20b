"""The expected time of a group: from its floor, its kind and, on a GPU, what kernels of that kind have achieved."""

import pytest

from compiler.figures import DeviceFigures
from compiler.planning.cost import REACHED, expected_ms
from compiler.planning.plan import Group

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
